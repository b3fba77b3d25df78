#include <csignal>

#include <gtest/gtest.h>

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // as the server does: a peer that has gone is an error of write(2)
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
