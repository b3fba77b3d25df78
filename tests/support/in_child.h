// What cannot be undone is tried in a child process.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

namespace idetcd {

// What `work`, which returns text, returns in a child; how the child has died, if it has.
template <typename Work>
std::string inChild(Work&& work) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    const std::string said = work();
    const ssize_t written = write(ends[1], said.data(), said.size());
    _exit(written == static_cast<ssize_t>(said.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string said;
  std::array<char, 4096> buffer;
  for (ssize_t size = 0; (size = read(ends[0], buffer.data(), buffer.size())) > 0;) {
    said.append(buffer.data(), static_cast<size_t>(size));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) return fmt::format("{} (child ended with status {:#x})", said, status);
  return said;
}

}  // namespace idetcd
