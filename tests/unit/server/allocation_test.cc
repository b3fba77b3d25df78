// The datapath allocates nothing: real sockets, the whole way from recvmmsg to sendmmsg and the loop around it, with
// malloc itself counted, so that no caller escapes it.
#include <atomic>
#include <cstdlib>

#include <gtest/gtest.h>

#include "../net/sockets.h"
#include "dns_packets.h"
#include "malloc_counter.h"
#include "running_server.h"

namespace idetcd::server {
namespace {

using test::Names;
using test::query;

class AllocationTest : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef IDETCD_SANITIZED
    GTEST_SKIP() << "the sanitizers allocate on their own";
#endif
  }
  // Sends them all, no more at a time than the client's socket holds answers, and waits for as many answers.
  void exchange(const std::vector<std::string>& queries) {
    constexpr size_t kUnderWay = 100;
    size_t answered = 0;
    for (size_t sent = 0; answered < queries.size(); ++answered) {
      for (; sent < queries.size() && sent - answered < kUnderWay; ++sent) {
        ASSERT_TRUE(client_.sendTo(server_.udpAddress(), queries[sent]));
      }
      ASSERT_TRUE(client_.receive());
    }
  }
  void startCounting() {
    server_.onLoop([this] { idetcd::test::countAllocations(&allocations_); });
    allocations_ = 0;  // what it took to say so
  }

  std::atomic<size_t> allocations_{0};
  test::RunningServer server_{"0.0.0.0"};
  net::test::Socket client_ = net::test::udpClient();
};

TEST_F(AllocationTest, TheCounterCounts) {
  startCounting();
  server_.onLoop([] {
    ::operator delete(::operator new(1));  // called, not a new-expression: that pair the compiler may leave out
    ::operator delete (::operator new (128, std::align_val_t{64}), std::align_val_t{64});
    void* (*volatile allocate)(size_t) = std::malloc;  // by its address, for the same reason
    std::free(allocate(1));
  });
  EXPECT_GE(allocations_.load(), 3u);
}

TEST_F(AllocationTest, NoQueryOverUdpTakesAny) {
  std::vector<std::string> queries;
  for (uint16_t i = 0; i < 50; ++i) {
    queries.push_back(query(i, Names::nameOf(1 + i)));                                   // NOERROR
    queries.push_back(query(i, Names::nameOf(1 + i), 28, true));                         // NODATA, with OPT
    queries.push_back(query(i, "x" + std::to_string(i) + ".tf.local.", 1, i % 2 == 0));  // NXDOMAIN
    queries.push_back(query(i, "tf.local.", i % 2 == 0 ? 6 : 2));                        // the apex: SOA, NS
    queries.push_back(query(i, "www.example.org."));                                     // REFUSED
    queries.push_back(query(i, Names::nameOf(1 + i), 255));                              // ANY
    std::string malformed = query(i, Names::nameOf(1));
    malformed.resize(malformed.size() - 3);  // FORMERR
    queries.push_back(malformed);
  }
  for (int i = 0; i < 5 && !HasFatalFailure(); ++i) exchange(queries);  // to the steady state
  startCounting();
  const uint64_t before = server_.counters().udp_sent.value();
  for (int i = 0; i < 20 && !HasFatalFailure(); ++i) exchange(queries);
  const size_t allocations = allocations_.load();
  const uint64_t answered = server_.counters().udp_sent.value() - before;
  EXPECT_EQ(allocations, 0u) << "for " << answered << " answers";
  EXPECT_EQ(answered, 20 * queries.size());
}

}  // namespace
}  // namespace idetcd::server
