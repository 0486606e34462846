#include "validate/peers.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

namespace rooftile {
namespace {

constexpr std::uint32_t kMostBytes = 64 << 10;
constexpr std::uint32_t kGreeting = 0x726f6f66;  // says that a connection is one of ours

// The first of the variables that holds a whole number.
bool read_variable(std::initializer_list<const char*> names, int& value) {
  for (const char* name : names)
    if (const char* text = std::getenv(name)) {
      char* end = nullptr;
      const long number = std::strtol(text, &end, 10);
      if (end != text && number >= 0 && number < 1 << 20) {
        value = static_cast<int>(number);
        return true;
      }
    }
  return false;
}

class Deadline {
 public:
  explicit Deadline(double seconds)
      : end_(std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds))) {}
  int left_ms() const {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end_ - std::chrono::steady_clock::now()).count();
    return left > 0 ? static_cast<int>(left) : 0;
  }

 private:
  std::chrono::steady_clock::time_point end_;
};

// Waits until the socket can be read or written. False: the time is over.
bool wait_for(int socket, short events, const Deadline& deadline) {
  while (true) {
    pollfd wanted{socket, events, 0};
    const int left = deadline.left_ms(), ready = poll(&wanted, 1, left);
    if (ready > 0) return true;
    if (ready == 0 && left == 0) return false;
    if (ready < 0 && errno != EINTR) return false;
  }
}

bool send_all(int socket, const void* data, std::size_t size, const Deadline& deadline) {
  for (std::size_t sent = 0; sent < size;) {
    if (!wait_for(socket, POLLOUT, deadline)) return false;
    const ssize_t more = send(socket, static_cast<const char*>(data) + sent, size - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (more < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (more <= 0) return false;
    sent += static_cast<std::size_t>(more);
  }
  return true;
}

bool receive_all(int socket, void* data, std::size_t size, const Deadline& deadline) {
  for (std::size_t got = 0; got < size;) {
    if (!wait_for(socket, POLLIN, deadline)) return false;
    const ssize_t more = recv(socket, static_cast<char*>(data) + got, size - got, MSG_DONTWAIT);
    if (more < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (more <= 0) return false;
    got += static_cast<std::size_t>(more);
  }
  return true;
}

bool send_text(int socket, const std::string& text, const Deadline& deadline) {
  const std::uint32_t size = htonl(static_cast<std::uint32_t>(text.size()));
  return send_all(socket, &size, sizeof size, deadline) && send_all(socket, text.data(), text.size(), deadline);
}

bool receive_text(int socket, std::string& text, const Deadline& deadline) {
  std::uint32_t size = 0;
  if (!receive_all(socket, &size, sizeof size, deadline)) return false;
  size = ntohl(size);
  if (size > kMostBytes) return false;
  text.resize(size);
  return receive_all(socket, text.data(), size, deadline);
}

void hasten(int socket) {
  const int yes = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};

}  // namespace

Launch launch_of_environment() {
  Launch launch;
  read_variable({"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"}, launch.rank);
  read_variable({"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"}, launch.ranks);
  if (!read_variable({"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"}, launch.local_rank)) launch.local_rank = launch.rank;
  int port = 0;
  if (read_variable({"MASTER_PORT"}, port)) launch.port = port + 2;
  for (const char* name : {"MASTER_ADDR", "SLURM_LAUNCH_NODE_IPADDR"})
    if (const char* host = std::getenv(name)) {
      launch.host = host;
      break;
    }
  if (launch.ranks < 1 || launch.rank >= launch.ranks) launch.rank = 0, launch.ranks = 1;
  return launch;
}

Peers::~Peers() {
  for (const int socket : sockets_)
    if (socket >= 0) close(socket);
}

std::string Peers::connect() {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  if (launch_.rank == 0) hints.ai_flags = AI_PASSIVE;
  const std::string port = std::to_string(launch_.port);
  // Ranks of one host stay on it; else rank 0 listens on every address, since the name by which others know it may not be its own.
  const bool local = launch_.host == "127.0.0.1" || launch_.host == "localhost";
  if (getaddrinfo(launch_.rank == 0 && !local ? nullptr : launch_.host.c_str(), port.c_str(), &hints, &found) != 0 || found == nullptr)
    return "cannot resolve the host of rank 0, " + launch_.host;
  const std::unique_ptr<addrinfo, FreeAddresses> address(found);
  const Deadline deadline(patience_s_);
  if (launch_.rank > 0) {
    while (deadline.left_ms() > 0) {
      const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
      const std::array<std::uint32_t, 2> hello = {htonl(kGreeting), htonl(static_cast<std::uint32_t>(launch_.rank))};
      if (::connect(socket, address->ai_addr, address->ai_addrlen) == 0 && send_all(socket, hello.data(), sizeof hello, deadline)) {
        hasten(socket);
        sockets_ = {socket};
        return {};
      }
      close(socket);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return "rank 0 did not answer at " + launch_.host + ":" + port;
  }
  const int server = ::socket(AF_INET, SOCK_STREAM, 0);
  const int yes = 1;
  setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  std::string reason;
  if (bind(server, address->ai_addr, address->ai_addrlen) != 0 || listen(server, launch_.ranks) != 0) reason = "cannot listen on port " + port + ": " + std::strerror(errno);
  sockets_.assign(static_cast<std::size_t>(launch_.ranks - 1), -1);
  for (int missing = launch_.ranks - 1; missing > 0 && reason.empty();) {
    if (!wait_for(server, POLLIN, deadline)) {
      reason = std::to_string(missing) + " of " + std::to_string(launch_.ranks) + " ranks did not come";
      break;
    }
    const int socket = accept(server, nullptr, nullptr);
    if (socket < 0) continue;
    std::array<std::uint32_t, 2> hello{};
    const bool ours = receive_all(socket, hello.data(), sizeof hello, Deadline(2)) && ntohl(hello[0]) == kGreeting;
    const std::uint32_t rank = ours ? ntohl(hello[1]) : 0;
    if (rank == 0 || rank >= static_cast<std::uint32_t>(launch_.ranks) || sockets_[rank - 1] >= 0) {
      close(socket);
      continue;
    }
    hasten(socket);
    sockets_[rank - 1] = socket;
    --missing;
  }
  close(server);
  return reason;
}

std::string Peers::gather(const std::string& mine, std::vector<std::string>& all) {
  const Deadline deadline(patience_s_);
  all.assign(static_cast<std::size_t>(launch_.ranks), {});
  all[static_cast<std::size_t>(launch_.rank)] = mine;
  if (launch_.rank > 0) {
    if (!send_text(sockets_[0], mine, deadline)) return "rank 0 is gone";
    for (std::string& text : all)
      if (!receive_text(sockets_[0], text, deadline)) return "rank 0 is gone or does not answer";
    return {};
  }
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (!receive_text(sockets_[rank - 1], all[rank], deadline)) return "rank " + std::to_string(rank) + " is gone or does not answer";
  for (const int socket : sockets_)
    for (const std::string& text : all)
      if (!send_text(socket, text, deadline)) return "a rank is gone";
  return {};
}

Result<std::vector<std::string>> Peers::exchange(const std::string& mine) {
  if (launch_.ranks < 2) return std::vector<std::string>{mine};
  std::vector<std::string> all;
  if (broken_.empty() && mine.size() > kMostBytes) broken_ = "a rank has more to say than the others take";
  if (broken_.empty() && sockets_.empty()) broken_ = connect();
  if (broken_.empty()) broken_ = gather(mine, all);
  if (broken_.empty()) return all;
  // The others learn at once that there is nothing to wait for.
  for (int& socket : sockets_)
    if (socket >= 0) close(std::exchange(socket, -1));
  return fail(ErrorCode::unavailable, broken_, "rank " + std::to_string(launch_.rank) + " of " + std::to_string(launch_.ranks),
              "every rank has to be started, with the same command");
}

}  // namespace rooftile
