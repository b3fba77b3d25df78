#include "resolve/recursion.h"

#include <gtest/gtest.h>

#include "forward_fixture.h"

namespace idetcd::resolve {
namespace {

constexpr size_t kLimit = 512;

// A client that keeps what it is sent.
class Client : public ClientKeeper {
 public:
  std::unique_ptr<ReplySink> keepClient() override { return std::make_unique<Sink>(*this); }
  const std::optional<std::string>& received() const { return received_; }

 private:
  struct Sink : ReplySink {
    explicit Sink(Client& to) : client(to) {}
    void send(std::span<const uint8_t> message) override { client.received_.emplace(message.begin(), message.end()); }
    Client& client;
  };
  std::optional<std::string> received_;
};

class RecursionTest : public ForwardFixture {
 protected:
  // An upstream that answers when it is told to.
  void SetUp() override {
    auto& server = upstream(
        [this](const Asked& asked, const Reply& reply) { release_ = [asked, reply] { reply.send(asked.answer()); }; });
    make(optionsFor({server.target()}));
    std::vector<std::unique_ptr<Forwarder>> forwarders;
    forwarders.push_back(std::move(forwarder_));
    recursion_ = std::make_unique<Recursion>(loop_, Recursion::Options{.identity = identity_}, nullptr,
                                             std::move(forwarders), nullptr, nullptr);
  }

  void ask(std::string_view name) {
    Message message(name, 1, 512);
    dns::Query query;
    ASSERT_EQ(dns::parseQuery(message.data(), message.size(), Message::kSeed, query), dns::ParseOutcome::kQuery);
    query.wants_nsid = true;
    query.nsid = identity_->text();
    sockaddr_storage source;
    const SocketAddress address{IpAddress::v4({127, 0, 0, 1}), 4711};
    address.toSockaddr(&source);
    const Request request{.source = reinterpret_cast<const sockaddr*>(&source),
                          .local = &address,
                          .transport = Transport::kUdp,
                          .response_limit = kLimit,
                          .now = BootClock::now(),
                          .client = &client_};
    ASSERT_EQ(recursion_->answer(query, request).kind, Outcome::Kind::kPending);
    runUntil([this] { return release_ != nullptr; });
  }
  const std::string& answer() {
    release_();
    runUntil([this] { return client_.received().has_value(); });
    return *client_.received();
  }

  std::optional<std::string> name_ = "worker7.tf.local.";
  std::shared_ptr<const Identity> identity_ =
      std::make_shared<const Identity>(Identity::Options{.own_name = [this] { return name_; }});
  std::unique_ptr<Recursion> recursion_;
  Client client_;
  std::function<void()> release_;
};

TEST_F(RecursionTest, ALateAnswerSaysTheNameOfTheMomentAtWhichItLeaves) {
  ask("www.example.org.");
  name_ = "worker8.tf.local.";
  EXPECT_TRUE(answer().ends_with("worker8.tf.local"));
}

TEST_F(RecursionTest, ALateAnswerDoesNotSayANameThatWasLost) {
  ask("www.example.org.");
  name_.reset();
  EXPECT_EQ(answer().find("worker"), std::string::npos);
}

TEST_F(RecursionTest, ALateAnswerDoesNotAskWhoIsGone) {
  ask("www.example.org.");
  identity_->disown();
  EXPECT_EQ(answer().find("worker"), std::string::npos);
}

TEST_F(RecursionTest, ALateAnswerToTheLongestNameFits) {
  name_ = std::string(240, 'n');
  const std::string longest =
      std::string(63, 'a') + '.' + std::string(63, 'b') + '.' + std::string(63, 'c') + '.' + std::string(61, 'd') + '.';
  ask(longest);
  const std::string& received = answer();
  EXPECT_LE(received.size(), kLimit);
  EXPECT_EQ(dns::load16(reinterpret_cast<const uint8_t*>(received.data()) + 6), 1) << "the answer is there";
}

}  // namespace
}  // namespace idetcd::resolve
