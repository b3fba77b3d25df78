#include <csignal>

#include <gtest/gtest.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/lsan_interface.h>
#define IDETCD_FINDS_LEAKS
#endif
#endif

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // as the server does: a peer that has gone is an error of write(2)
  testing::InitGoogleTest(&argc, argv);
  const int status = RUN_ALL_TESTS();
#ifdef IDETCD_FINDS_LEAKS
  // Not at exit: OpenSSL's handlers there forget what they keep for threads, and gRPC's go on.
  __lsan_do_leak_check();
#endif
  return status;
}
