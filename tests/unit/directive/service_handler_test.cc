#include "directive/etcd/service_handler.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/query_fixture.h"
#include "support/upstream_message.h"

namespace idetcd::directive {
namespace {

using SkyOutcome = resolve::QueryOutcome;

constexpr uint16_t kTypeA = 1;
constexpr uint16_t kTypeAaaa = 28;
constexpr uint16_t kTypeDs = 43;

// What is behind the handler: says what the test has said, at once or when it is told to.
class HandlerBehind final : public resolve::Handler {
 public:
  SkyOutcome answer(const dns::Query& query, const resolve::Request& request, uint16_t) override {
    const std::string name = dns::nameToString(query.qname);
    asked.push_back(name);
    const auto found = responses.find(name);
    if (found == responses.end()) return SkyOutcome::next();
    std::vector<uint8_t> response = found->second;
    dns::store16(response.data(), dns::load16(query.message));
    if (late) {
      waiting = {request.deferrer->keepClient(), response};
      return SkyOutcome::pending();
    }
    std::ranges::copy(response, query.message);
    return SkyOutcome::answer(response.size());
  }

  bool late = false;
  std::map<std::string, std::vector<uint8_t>> responses;
  std::vector<std::string> asked;
  std::pair<std::unique_ptr<resolve::ReplySink>, std::vector<uint8_t>> waiting;
};

struct SkyClient : resolve::ReplyDeferrer {
  struct Sink : resolve::ReplySink {
    explicit Sink(SkyClient& to) : client(to) {}
    void send(std::span<const uint8_t> message) override { client.received.emplace(message.begin(), message.end()); }
    SkyClient& client;
  };
  std::unique_ptr<resolve::ReplySink> keepClient() override { return std::make_unique<Sink>(*this); }
  std::optional<std::vector<uint8_t>> received;
};

class ServiceHandlerTest : public testing::Test {
 protected:
  void SetUp() override { use({.services = services_, .zones = {dns::Name::parse("sky.test.").value()}}); }

  void use(ServiceHandler::Options options) {
    options.hash_seed = Message::kSeed;
    chain_ = std::make_unique<resolve::Chain>();
    chain_->add(std::make_unique<ServiceHandler>(*chain_, 0, std::move(options)));
    auto behind = std::make_unique<HandlerBehind>();
    behind_ = behind.get();
    chain_->add(std::move(behind));
  }

  void hold(const std::map<std::string, std::string>& values) {
    std::vector<skydns::ServicePtr> list;
    for (const auto& [key, value] : values) {
      auto service = skydns::parseService(key, value);
      ASSERT_TRUE(service) << key;
      list.push_back(std::make_shared<const skydns::Service>(std::move(*service)));
    }
    services_->publish({std::move(list), 1});
    services_->setFreshUntil(BootClock::now() + std::chrono::hours(1));
  }

  // "NOERROR 1 aa", with the number of answers; "none": nothing yet.
  std::string ask(std::string_view name, uint16_t type = kTypeA, bool recursion = true, bool own_only = false) {
    Message message(name, type, 1232);
    if (!recursion) message.data()[2] = 0;
    dns::Query query;
    EXPECT_EQ(dns::parseQuery(message.data(), message.size(), Message::kSeed, query), dns::ParseOutcome::kQuery);
    client_.received.reset();
    const resolve::Request request{
        .response_limit = 1232, .now = BootClock::now(), .deferrer = &client_, .own_only = own_only};
    const SkyOutcome outcome = chain_->answer(query, request);
    if (outcome.kind == SkyOutcome::Kind::kPending) return "none";
    return textOf({message.data(), outcome.size});
  }
  std::string tellLate() {
    const auto waiting = std::exchange(behind_->waiting, {});
    waiting.first->send(waiting.second);
    return client_.received ? textOf(*client_.received) : "none";
  }
  static std::string textOf(std::span<const uint8_t> message) {
    const dns::HeaderView header(message.data());
    std::string text = dns::kRcodeNames.toString(dns::code(header.rcode())) + " " + std::to_string(header.answers());
    if ((header.flags() & dns::kFlagAa) != 0) text += " aa";
    if (header.isTruncated()) text += " tc";
    return text;
  }

  void say(const std::string& name, const UpstreamMessage& response) { behind_->responses[name] = response.bytes; }

  const std::shared_ptr<skydns::ServiceSet> services_ =
      std::make_shared<skydns::ServiceSet>(std::make_shared<Executor>());
  std::unique_ptr<resolve::Chain> chain_;
  HandlerBehind* behind_ = nullptr;
  SkyClient client_;
};

TEST_F(ServiceHandlerTest, AnswersItsZones) {
  EXPECT_EQ(ask("a.sky.test."), "SERVFAIL 0") << "nothing was read yet";
  hold({{"/test/sky/a", R"({"host":"192.0.2.1"})"}});
  EXPECT_EQ(ask("a.sky.test."), "NOERROR 1 aa");
  EXPECT_EQ(ask("a.sky.test.", kTypeAaaa), "NOERROR 0 aa");
  EXPECT_EQ(ask("b.sky.test."), "NXDOMAIN 0 aa");
  EXPECT_TRUE(behind_->asked.empty());
  EXPECT_EQ(ask("a.other.test."), "REFUSED 0");
  EXPECT_EQ(behind_->asked, std::vector<std::string>{"a.other.test."});
  hold({{"/test/sky/b", R"({"host":"192.0.2.1"})"}});
  EXPECT_EQ(ask("b.sky.test."), "NOERROR 1 aa") << "a newer table";
}

TEST_F(ServiceHandlerTest, NamesAboveAZoneExist) {
  hold({});
  say("test.", UpstreamMessage("test.", kTypeA, 0x8183));
  EXPECT_EQ(ask("test."), "NOERROR 0");
  say("est.", UpstreamMessage("est.", kTypeA, 0x8183));
  EXPECT_EQ(ask("est."), "NXDOMAIN 0");
}

TEST_F(ServiceHandlerTest, TheZonesDsIsTheParents) {
  hold({});
  EXPECT_EQ(ask("sky.test.", kTypeDs), "NOERROR 0 aa");
  say("sky.test.", UpstreamMessage("sky.test.", kTypeDs).record(UpstreamMessage::kAnswer, "sky.test.", kTypeDs, 60, {0, 1, 8, 2}));
  EXPECT_EQ(ask("sky.test.", kTypeDs), "NOERROR 1");
}

TEST_F(ServiceHandlerTest, Fallthrough) {
  use({.services = services_,
       .zones = {dns::Name::parse("sky.test.").value()},
       .fallthrough = {dns::Name::parse("low.sky.test.").value()}});
  hold({{"/test/sky/low/a", R"({"text":"x"})"}});
  say("b.low.sky.test.", UpstreamMessage("b.low.sky.test.", kTypeA).a("b.low.sky.test.", 60, {192, 0, 2, 1}));
  EXPECT_EQ(ask("b.low.sky.test."), "NOERROR 1");
  EXPECT_EQ(ask("b.sky.test."), "NXDOMAIN 0 aa");
  EXPECT_EQ(ask("a.low.sky.test."), "NOERROR 0 aa") << "the name exists";
}

TEST_F(ServiceHandlerTest, TargetsElsewhere) {
  hold({{"/test/sky/out", R"({"host":"www.other"})"}});
  EXPECT_EQ(ask("out.sky.test."), "NOERROR 0 aa") << "nobody knows the target";
  say("www.other.", UpstreamMessage("www.other.", kTypeA).a("www.other.", 60, {192, 0, 2, 1}).a("www.other.", 60, {192, 0, 2, 2}));
  EXPECT_EQ(ask("out.sky.test."), "NOERROR 3 aa");
  behind_->asked.clear();
  EXPECT_EQ(ask("out.sky.test.", kTypeA, false), "NOERROR 1 aa") << "the alias alone";
  EXPECT_EQ(ask("out.sky.test.", kTypeA, true, true), "NOERROR 1 aa");
  EXPECT_TRUE(behind_->asked.empty());
  say("www.other.", UpstreamMessage("www.other.", kTypeA, 0x8183));
  EXPECT_EQ(ask("out.sky.test."), "NOERROR 0 aa") << "no such target";
  say("www.other.", UpstreamMessage("www.other.", kTypeA, 0x8182));
  EXPECT_EQ(ask("out.sky.test."), "SERVFAIL 0");
  say("www.other.", UpstreamMessage("www.other.", kTypeA, 0x8380));
  EXPECT_EQ(ask("out.sky.test."), "NOERROR 0 tc");
}

TEST_F(ServiceHandlerTest, TargetsThatAreAnsweredLate) {
  hold({{"/test/sky/out", R"({"host":"www.other"})"}});
  behind_->late = true;
  say("www.other.", UpstreamMessage("www.other.", kTypeA).a("www.other.", 60, {192, 0, 2, 1}));
  EXPECT_EQ(ask("out.sky.test."), "none");
  EXPECT_EQ(tellLate(), "NOERROR 2 aa");
  EXPECT_EQ(dns::load16(client_.received->data()), 0xbeef) << "the client's ID";
  EXPECT_EQ(ask("out.sky.test."), "none");
  hold({{"/test/sky/out", R"({"host":"192.0.2.9"})"}});
  EXPECT_EQ(tellLate(), "NOERROR 1 aa") << "it has changed meanwhile";
  hold({{"/test/sky/out", R"({"host":"www.other"})"}});
  EXPECT_EQ(ask("out.sky.test."), "none");
  hold({{"/test/sky/out", R"({"host":"www.another"})"}});
  EXPECT_EQ(tellLate(), "SERVFAIL 0") << "nobody has asked for the other target";
  hold({{"/test/sky/out", R"({"host":"www.other"})"}});
  EXPECT_EQ(ask("out.sky.test."), "none");
  hold({});
  EXPECT_EQ(tellLate(), "NXDOMAIN 0 aa");
}

TEST_F(ServiceHandlerTest, OldAnswersSaySo) {
  hold({{"/test/sky/a", R"({"host":"192.0.2.1"})"}});
  const auto sizeOf = [&] {
    Message message("a.sky.test.", kTypeA, 1232);
    dns::Query query;
    dns::parseQuery(message.data(), message.size(), Message::kSeed, query);
    return chain_->answer(query, {.response_limit = 1232, .now = BootClock::now(), .deferrer = &client_}).size;
  };
  const size_t fresh = sizeOf();
  services_->setFreshUntil(BootClock::now() - std::chrono::seconds(1));
  EXPECT_EQ(sizeOf(), fresh + 6) << "an extended error";
}

}  // namespace
}  // namespace idetcd::directive
