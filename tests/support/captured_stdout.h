// What a Logger writes, in tests. One thread at a time.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <unistd.h>

#include <gtest/gtest.h>

namespace idetcd {

// What `body` writes to the process's standard output. The sink writes to stdout(3), so descriptor 1 is swapped.
template <typename Body>
std::string captured(Body body) {
  fflush(stdout);
  char path[] = "/tmp/idetcd-log-test-XXXXXX";
  const int file = mkstemp(path);
  unlink(path);
  const int saved = dup(STDOUT_FILENO);
  dup2(file, STDOUT_FILENO);
  body();
  fflush(stdout);
  dup2(saved, STDOUT_FILENO);
  close(saved);
  std::string text(static_cast<size_t>(lseek(file, 0, SEEK_END)), '\0');
  EXPECT_EQ(pread(file, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  close(file);
  return text;
}

}  // namespace idetcd
