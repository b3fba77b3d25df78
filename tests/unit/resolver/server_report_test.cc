// Reports of a Forwarder's servers, as other threads read them.
#include "resolver/upstream.h"

#include "support/forward_fixture.h"

namespace idetcd::resolver {
namespace {

class ServerReportTest : public ForwardFixture {};

TEST_F(ServerReportTest, FollowsWhatTheLoopLearns) {
  auto& server = upstream(answerAll);
  Forwarder::Options options = hastyOptionsFor({server.target()});
  options.max_fails = 1;
  make(std::move(options));
  const auto reports = forwarder_->reports();
  const auto all = reports->all();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0]->server, server.address().toString());
  EXPECT_TRUE(all[0]->isUp()) << "for all that is known";
  EXPECT_EQ(all[0]->roundTrip(), std::nullopt);
  // A busy machine may have the question sent twice, which says nothing of the time.
  runUntil([&] { return resolve(), all[0]->roundTrip().has_value(); });
  server.handle(sayNothing);
  runUntil([&] { return resolve(), !all[0]->isUp(); });
  server.handle(answerAll);
  runUntil([&] { return all[0]->isUp(); });
  forwarder_.reset();
  EXPECT_EQ(reports->all().size(), 1u) << "it outlives the loop's objects";
}

}  // namespace
}  // namespace idetcd::resolver
