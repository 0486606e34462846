# The libraries from the distribution, each behind one name of ours: where a static archive exists it is preferred, because a process of a few milliseconds feels every shared
# library it loads.

find_path(ROOFTILE_EXPECTED_INCLUDE tl/expected.hpp REQUIRED)
add_library(rooftile_expected INTERFACE)
target_include_directories(rooftile_expected SYSTEM INTERFACE $<BUILD_INTERFACE:${ROOFTILE_EXPECTED_INCLUDE}>)

# Not header-only: that makes each of our sources compile two seconds longer, and the first build is what a newcomer waits for.
find_package(fmt REQUIRED)
add_library(rooftile_fmt INTERFACE)
if(ROOFTILE_PORTABLE)
  # Debian and Ubuntu have no archive of fmt: its one source file, which is a header, is compiled here.
  find_path(ROOFTILE_FMT_INCLUDE fmt/format.h REQUIRED)
  add_library(rooftile_fmt_archive STATIC ${CMAKE_SOURCE_DIR}/cmake/fmt_archive.cc)
  target_include_directories(rooftile_fmt_archive SYSTEM PUBLIC ${ROOFTILE_FMT_INCLUDE})
  target_link_libraries(rooftile_fmt INTERFACE rooftile_fmt_archive)
else()
  target_link_libraries(rooftile_fmt INTERFACE fmt::fmt)
endif()

# yaml-cpp 0.7 (Debian 12) exports the target yaml-cpp, 0.8 (Ubuntu 24.04) yaml-cpp::yaml-cpp.
find_package(yaml-cpp REQUIRED)
add_library(rooftile_yaml INTERFACE)
find_library(ROOFTILE_YAML_ARCHIVE libyaml-cpp.a)
if(ROOFTILE_YAML_ARCHIVE)
  target_link_libraries(rooftile_yaml INTERFACE ${ROOFTILE_YAML_ARCHIVE})
elseif(TARGET yaml-cpp::yaml-cpp)
  target_link_libraries(rooftile_yaml INTERFACE yaml-cpp::yaml-cpp)
else()
  target_link_libraries(rooftile_yaml INTERFACE yaml-cpp)
endif()

find_package(nlohmann_json REQUIRED)
add_library(rooftile_json INTERFACE)
target_link_libraries(rooftile_json INTERFACE nlohmann_json::nlohmann_json)

find_package(CLI11 REQUIRED)
add_library(rooftile_cli11 INTERFACE)
target_link_libraries(rooftile_cli11 INTERFACE CLI11::CLI11)

# Profiler traces are gzip files.
find_package(ZLIB REQUIRED)
add_library(rooftile_zlib INTERFACE)
find_library(ROOFTILE_ZLIB_ARCHIVE libz.a)
if(ROOFTILE_ZLIB_ARCHIVE)
  target_include_directories(rooftile_zlib SYSTEM INTERFACE ${ZLIB_INCLUDE_DIRS})
  target_link_libraries(rooftile_zlib INTERFACE ${ROOFTILE_ZLIB_ARCHIVE})
else()
  target_link_libraries(rooftile_zlib INTERFACE ZLIB::ZLIB)
endif()

find_package(Threads REQUIRED)
