#include <unistd.h>
#include <csignal>
#include <span>

#include "cli/commands.h"

int main(int argc, char** argv) {
  // What was written stays; nothing else needs an end. Reports stop quietly when their reader goes away: write errors are looked at where text is written.
  std::signal(SIGINT, [](int) { _exit(130); });
  std::signal(SIGPIPE, SIG_IGN);
  return rooftile::run_command_line(std::span<const char* const>(argv + (argc > 0 ? 1 : 0), static_cast<std::size_t>(argc > 0 ? argc - 1 : 0)));
}
