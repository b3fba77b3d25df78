// The counts of queries, and the end of their time.
#include "resolve/query_meter.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <netinet/in.h>
#include <numeric>
#include <utility>

#include <gtest/gtest.h>

#include "resolve/deferred_reply.h"
#include "resolve/router.h"
#include "support/query_fixture.h"

namespace idetcd::resolve {
namespace {

using namespace std::chrono_literals;

TEST(SizeHistogramTest, EachSizeIsInTheFirstBucketThatHoldsIt) {
  for (size_t bytes = 0; bytes <= 65535; ++bytes) {
    const auto bound = std::ranges::find_if(SizeHistogram::kBounds, [bytes](uint32_t b) { return bytes <= b; });
    ASSERT_EQ(SizeHistogram::bucketOf(bytes), static_cast<size_t>(bound - SizeHistogram::kBounds.begin())) << bytes;
  }
}

TEST(DurationHistogramTest, Buckets) {
  DurationHistogram histogram;
  histogram.observe(-1ns);  // the clock is read by several loops
  histogram.observe(1us);
  histogram.observe(1001ns);
  histogram.observe(250us, 3);
  histogram.observe(8192ms);
  histogram.observe(8193ms);
  const auto count = [&](size_t bucket) { return histogram.buckets_.at(bucket).value(); };
  EXPECT_EQ(count(0), 2u);
  EXPECT_EQ(count(1), 1u);
  EXPECT_EQ(count(DurationHistogram::kFine), 3u);
  EXPECT_EQ(count(DurationHistogram::kBounds.size() - 1), 1u) << "the last one of CoreDNS: 8.192 s";
  EXPECT_EQ(count(DurationHistogram::kBounds.size()), 1u);
  EXPECT_EQ(histogram.sum_.value(), 1000u + 1001 + 3 * 250000 + 8192000000 + 8193000000);
}

TEST(QueryMeterTest, TypesHaveTheirNames) {
  const std::pair<uint16_t, const char*> cases[] = {{1, "A"},      {28, "AAAA"}, {255, "ANY"},  {65, "HTTPS"},
                                                    {252, "AXFR"}, {0, "other"}, {64, "other"}, {65535, "other"}};
  for (const auto& [number, name] : cases) EXPECT_EQ(QueryMeter::kTypes.at(QueryMeter::typeIndex(number)), name);
}

template <typename Counts>
uint64_t sumOf(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0},
                         [](uint64_t sum, const MeterCount& count) { return sum + count.value(); });
}

struct Answers : Handler {
  QueryOutcome answer(const dns::Query& query, const Request& request, uint16_t) override {
    if (later) {
      reply = std::make_unique<DeferredReply>(query, request);
      return QueryOutcome::pending();
    }
    return QueryOutcome::answer(query.question_end);
  }
  bool later = false;
  std::unique_ptr<DeferredReply> reply;
};

struct Client : ReplyDeferrer {
  struct Sink : ReplySink {
    void send(std::span<const uint8_t>) override {}
  };
  std::unique_ptr<ReplySink> keepClient() override { return std::make_unique<Sink>(); }
};

// A block for example.org. that answers all, counted as directive 7.
class RouterMeterTest : public testing::Test {
 protected:
  static constexpr DirectiveId kDirective = 7;

  RouterMeterTest() {
    auto chain = std::make_shared<Chain>();
    auto handler = std::make_unique<Answers>();
    handler_ = handler.get();
    chain->setDirective(kDirective);
    chain->add(std::move(handler));
    router_ = std::make_unique<Router>(
        std::vector<Router::Zone>{
            {.name = dns::Name::parse("example.org.").value(), .chain = std::move(chain), .meter = meter_}},
        HashSeed(Message::kSeed), unrouted_);
  }

  QueryOutcome ask(Message& message, Transport transport = Transport::kUdp, bool again = false) {
    Job job;
    router_->begin(job, message.data(), message.size());
    Request request{.source = reinterpret_cast<const sockaddr*>(&source_),
                    .local = &local_,
                    .transport = transport,
                    .response_limit = 1232,
                    .now = BootClock::now(),
                    .deferrer = &client_,
                    .is_again = again};
    const QueryOutcome outcome = router_->answer(job, request);
    EXPECT_EQ(request.meter, nullptr) << "the next query of the batch may be of another zone";
    return outcome;
  }
  uint64_t requests(size_t transport, size_t family, uint16_t type) const {
    return meter_->requests[transport][family][QueryMeter::typeIndex(type)].value();
  }
  uint64_t timed() const { return sumOf(meter_->durations.buckets_); }

  Answers* handler_ = nullptr;
  const std::shared_ptr<QueryMeter> meter_ = std::make_shared<QueryMeter>();
  const std::shared_ptr<QueryMeter> unrouted_ = std::make_shared<QueryMeter>();
  sockaddr_in source_{.sin_family = AF_INET, .sin_port = 1, .sin_addr = {}, .sin_zero = {}};
  const SocketAddress local_{};
  Client client_;
  std::unique_ptr<Router> router_;
};

TEST_F(RouterMeterTest, WhatIsAnsweredAtOnce) {
  Message message("a.example.org.", 28, 1232);
  const size_t size = message.size();
  const QueryOutcome outcome = ask(message, Transport::kTcp);
  ASSERT_EQ(outcome.kind, QueryOutcome::Kind::kAnswer);
  EXPECT_EQ(requests(1, 0, 28), 1u);
  EXPECT_EQ(requests(0, 0, 28), 0u);
  EXPECT_EQ(meter_->request_sizes[1].sum_.value(), size);
  EXPECT_EQ(meter_->response_sizes[1].sum_.value(), outcome.size);
  EXPECT_EQ(meter_->responses[kDirective][0].value(), 1u);
  EXPECT_EQ(meter_->requests_with_do.value(), 0u);
  EXPECT_EQ(timed(), 0u) << "its batch goes on";
  router_->onBatchDone({}, {}, BootClock::now() - 3ms);
  router_->onBatchDone({}, {}, BootClock::now() - 3ms);
  EXPECT_EQ(timed(), 1u);
  EXPECT_GE(meter_->durations.sum_.value(), 3000000u);
}

TEST_F(RouterMeterTest, WhatIsAnsweredLater) {
  handler_->later = true;
  Message message("a.example.org.", 1);
  ASSERT_EQ(ask(message).kind, QueryOutcome::Kind::kPending);
  EXPECT_EQ(requests(0, 0, 1), 1u);
  router_->onBatchDone({}, {}, BootClock::now());
  EXPECT_EQ(timed(), 0u);
  std::vector<uint8_t> room;
  handler_->reply->makeRoom(room, nullptr);
  room[3] |= 2;  // SERVFAIL
  handler_->reply->finish(40, nullptr, nullptr, kDirective);
  EXPECT_EQ(meter_->responses[kDirective][2].value(), 1u);
  EXPECT_EQ(meter_->response_sizes[0].sum_.value(), 40u);
  EXPECT_EQ(timed(), 1u);
}

TEST_F(RouterMeterTest, WhatNoZoneHolds) {
  Message message("a.example.net.", 1);
  ask(message);
  EXPECT_EQ(requests(0, 0, 1), 0u);
  EXPECT_EQ(unrouted_->requests[0][0][QueryMeter::typeIndex(1)].value(), 1u);
  EXPECT_EQ(unrouted_->responses[DirectiveNames::kServer][5].value(), 1u) << "REFUSED, by no directive";
}

TEST_F(RouterMeterTest, WhatCannotBeRead) {
  Message other_version("a.example.org.", 1, 1232);
  other_version.data()[other_version.size() - 5] = 1;  // EDNS version
  ask(other_version);
  EXPECT_EQ(unrouted_->responses[DirectiveNames::kServer][16].value(), 1u) << "BADVERS";
  Message response("a.example.org.", 1);
  response.data()[2] |= 0x80;  // QR
  EXPECT_EQ(ask(response).kind, QueryOutcome::Kind::kDrop);
  EXPECT_EQ(unrouted_->requests[0][0][QueryMeter::typeIndex(1)].value(), 1u) << "what is no query is not one more";
}

TEST_F(RouterMeterTest, WhatIsAnsweredAnewIsOneQuery) {
  Message message("a.example.org.", 1);
  ask(message, Transport::kTcp);
  Message once_more("a.example.org.", 1);
  ask(once_more, Transport::kTcp, true);
  EXPECT_EQ(requests(1, 0, 1), 1u);
}

// Two blocks with a cluster's names and one without `prometheus`, in one batch.
TEST(BatchMeterTest, EachQueryIsCountedOnceAtTheEndOfItsBatch) {
  records::EpochDomain epochs;
  records::RecordStore store(epochs,
                             {.zone = dns::Name::parse("a.").value(), .addresses = {}, .hash_seed = Message::kSeed});
  store.put(dns::Name::parse("w.a.").value(), {.ipv4 = IpAddress::v4({192, 0, 2, 1}), .ipv6 = {}}, 1);
  store.setFreshness(records::Freshness::kFresh);
  std::vector<std::shared_ptr<QueryMeter>> meters{std::make_shared<QueryMeter>(), std::make_shared<QueryMeter>(),
                                                  nullptr};
  std::vector<Router::Zone> zones;
  Answers* behind = nullptr;
  for (const auto& meter : meters) {
    auto chain = std::make_shared<Chain>();
    chain->setDirective(3);
    chain->addCluster(std::make_shared<const ClusterZone>(store, ClusterZone::Options{.fallthrough = {dns::Name()}}));
    chain->setDirective(4);
    auto handler = std::make_unique<Answers>();
    behind = handler.get();
    chain->add(std::move(handler));
    const char* name = zones.empty() ? "a." : zones.size() == 1 ? "b." : ".";
    zones.push_back({.name = dns::Name::parse(name).value(), .chain = std::move(chain), .meter = meter});
  }
  behind->later = true;
  const Router router(std::move(zones), HashSeed(Message::kSeed));
  std::vector<Message> messages{{"w.a.", 1, 1232}, {"x.b.", 28}, {"w.a.", 1}, {"no.c.", 1}, {"no.b.", 1}};
  std::vector<Job> jobs(messages.size());
  sockaddr_in6 source{};
  source.sin6_family = AF_INET6;
  const SocketAddress local{.ip = IpAddress::parse("::1").value(), .port = 53};
  Client client;
  Request request{.source = reinterpret_cast<const sockaddr*>(&source),
                  .local = &local,
                  .response_limit = 512,
                  .now = BootClock::now(),
                  .deferrer = &client};
  records::EpochDomain::Reader reader(epochs);
  const records::ReadSection section(reader);
  std::vector<QueryOutcome> outcomes;
  for (size_t i = 0; i < jobs.size(); ++i) {
    router.begin(jobs[i], messages[i].data(), messages[i].size());
    if (i == jobs.size() - 1) {
      Router::pass(jobs[i]);  // it came from port 0
      continue;
    }
    outcomes.push_back(router.answerInBatch(jobs[i], request));
    EXPECT_EQ(request.meter, nullptr);
  }
  EXPECT_EQ(outcomes.back().kind, QueryOutcome::Kind::kPending) << "of the block that is not counted";
  EXPECT_EQ(sumOf(meters[0]->requests[0][1]), 0u) << "not yet";
  router.countBatch(jobs, local);
  EXPECT_EQ(meters[0]->requests[0][1][QueryMeter::typeIndex(1)].value(), 2u);
  EXPECT_EQ(meters[1]->requests[0][1][QueryMeter::typeIndex(28)].value(), 1u);
  EXPECT_EQ(sumOf(meters[1]->requests[0][1]), 1u);
  EXPECT_EQ(meters[0]->responses[3][0].value(), 2u);
  EXPECT_EQ(meters[1]->responses[4][0].value(), 1u) << "the handler behind the names";
  EXPECT_EQ(meters[0]->response_sizes[0].sum_.value(), outcomes[0].size + outcomes[2].size);
  EXPECT_EQ(sumOf(meters[0]->request_sizes[0].buckets_), 2u);
  EXPECT_EQ(meters[0]->request_sizes[0].sum_.value(), messages[0].size() + messages[2].size());
  router.onBatchDone(jobs, {}, BootClock::now());
  EXPECT_EQ(sumOf(meters[0]->durations.buckets_), 2u);
  EXPECT_EQ(sumOf(meters[1]->durations.buckets_), 1u);
}

TEST(DirectiveNamesTest, AreNumbersOfTheProcess) {
  DirectiveNames names;
  EXPECT_EQ(names.idOf(""), DirectiveNames::kServer);
  const DirectiveId cache = names.idOf("cache");
  EXPECT_NE(cache, names.idOf("forward"));
  EXPECT_EQ(cache, names.idOf("cache"));
  EXPECT_EQ(names.all().at(cache), "cache");
  for (int i = 0; i < 300; ++i) names.idOf(std::to_string(i));
  EXPECT_EQ(names.all().size(), DirectiveNames::kMax);
  EXPECT_EQ(names.idOf("too many"), DirectiveNames::kServer);
}

}  // namespace
}  // namespace idetcd::resolve
