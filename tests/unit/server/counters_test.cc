// What no other test of this folder makes happen.
#include "server/counters.h"

#include <functional>
#include <memory>
#include <utility>

#include <gtest/gtest.h>

#include "../net/sockets.h"
#include "dns_packets.h"
#include "running_server.h"
#include "support/metric_values.h"

namespace idetcd::server {
namespace {

using test::query;

class FunctionHandler : public resolve::Handler {
 public:
  using Function = std::function<resolve::Outcome(const dns::Query&, const resolve::Request&)>;
  explicit FunctionHandler(Function function) : function_(std::move(function)) {}
  resolve::Outcome answer(const dns::Query& query, const resolve::Request& request, uint16_t) override {
    return function_(query, request);
  }

 private:
  const Function function_;
};

resolve::Outcome echo(const dns::Query& query) {
  query.message[2] |= 0x80;  // QR
  return resolve::Outcome::answer(query.question_end);
}

TEST(ServerCounters, AnAnswerThatTheKernelDoesNotTake) {
  test::RunningServer server;
  server.setHandler(std::make_unique<FunctionHandler>([](const dns::Query& query, const resolve::Request& request) {
    // Port 0, which sendmmsg refuses; of what comes from there nothing gets this far.
    const auto* source = reinterpret_cast<const sockaddr_in*>(request.source);
    const_cast<sockaddr_in*>(source)->sin_port = 0;
    return echo(query);
  }));
  net::test::Socket client = net::test::udpClient();
  ASSERT_TRUE(client.sendTo(server.udpAddress(), query(1, "a.")));
  while (server.counters().udp_send_failed.value() == 0) server.onLoop([] {});
  EXPECT_EQ(server.counters().udp_received.value(), 1u);
  EXPECT_EQ(server.counters().udp_sent.value(), 1u) << "it was written";
  EXPECT_EQ(test_support::sumOf(server.registry(), "idetcd_udp_send_failures_total"), 1);
}

TEST(ServerCounters, AnAnswerThatIsPutOff) {
  test::RunningServer server;
  std::unique_ptr<resolve::ReplySink> kept;
  bool is_asked_again = false;
  server.setHandler(std::make_unique<FunctionHandler>([&](const dns::Query& query, const resolve::Request& request) {
    if (std::exchange(is_asked_again, true)) return echo(query);
    kept = request.deferrer->deferReply();
    return resolve::Outcome::pending();
  }));
  net::test::Socket client = net::test::tcpClient(server.tcpAddress());
  client.send(test::framed(query(7, "a.")));
  bool is_kept = false;
  while (!is_kept) server.onLoop([&] { is_kept = kept != nullptr; });
  constexpr size_t kAll = WriteBudget::Limits{}.process;
  server.onLoop([&] {
    server.budget().change(std::nullopt, 0, kAll);  // as if others did not read
    EXPECT_TRUE(kept->defer());
    kept.reset();
  });
  EXPECT_EQ(server.counters().tcp_deferred.value(), 1u);
  server.onLoop([&] { server.budget().change(std::nullopt, kAll, 0); });
  EXPECT_GT(client.receiveExactly(2).size(), 0u) << "it was asked anew";
}

TEST(ServerCounters, BatchesByTheirSize) {
  test::RunningServer server;
  net::test::Socket client = net::test::udpClient();
  ASSERT_TRUE(client.sendTo(server.udpAddress(), query(1, "a.")));
  while (server.counters().udp_batches.count() == 0) server.onLoop([] {});
  EXPECT_EQ(server.counters().udp_batches.sum(), 1u);
  EXPECT_EQ(test_support::sumOf(server.registry(), "idetcd_udp_batch_datagrams"), 1);
}

// Who looks at a registry finds all of them.
TEST(ServerCounters, AreAllRegistered) {
  const test::RunningServer server;
  size_t families = 0;
  server.registry().visit([&families](const metrics::Sample& sample) {
    EXPECT_FALSE(sample.family.help.empty());
    ++families;
  });
  EXPECT_EQ(families, 12u);
}

}  // namespace
}  // namespace idetcd::server
