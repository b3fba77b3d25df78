// What a claim makes of an answer that leaves open whether it was applied.
#include "naming/claim.h"

#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "etcd/client.h"
#include "naming/keyspace.h"
#include "support/etcd_server.h"
#include "unit/naming/forwarding_store.h"
#include "unit/naming/on_thread.h"

namespace idetcd::naming {
namespace {

using namespace std::chrono_literals;
using runtime::Task;
using store::StoreError;
using store::StoreResult;
using test_support::EtcdServer;

// A client whose first claims (transactions that delete a ticket) are answered with an error, done or not.
class UnclearStore final : public ForwardingStore {
 public:
  // Late: after the second one; revoked: when its lease is given back; overwritten: when the ticket is put again, and
  // another process with the UUID has written an incarnation by then.
  enum class First { kDone, kLate, kRevoked, kOverwritten };

  UnclearStore(etcd::Client& client, First first, StoreError answer)
      : ForwardingStore(client), first_(first), answer_(std::move(answer)) {}

  Task<StoreResult<store::TxnResult>> txn(store::TxnRequest request) override {
    const auto deletes = [](const store::Op& op) { return std::holds_alternative<store::DeleteOp>(op); };
    if (is_overwritten_) return thenTicket(std::move(request));
    if (late_is_due_ && std::ranges::any_of(request.success, deletes)) return thenLate(std::move(request));
    if (answered_ || std::ranges::none_of(request.success, deletes)) return client_.txn(std::move(request));
    answered_ = true;
    return answerUnclearly(std::move(request));
  }
  Task<StoreResult<void>> leaseRevoke(int64_t id) override {
    if (++revocations == 1 && first_ == First::kRevoked) return losesTheRevocation();
    return client_.leaseRevoke(id);
  }

  int revocations = 0;
  bool late = false;  // the first one was refused at last

 private:
  Task<StoreResult<store::TxnResult>> thenLate(store::TxnRequest request) {
    auto answer = co_await client_.txn(std::move(request));
    const auto first = co_await client_.txn(std::move(late_));
    late = first && !first->succeeded;
    co_return answer;
  }
  Task<StoreResult<store::TxnResult>> answerUnclearly(store::TxnRequest request) {
    if (first_ == First::kDone) {
      const auto done = co_await client_.txn(std::move(request));
      EXPECT_TRUE(done && done->succeeded);
    } else {
      late_ = std::move(request);
      late_is_due_ = first_ == First::kLate;
      is_overwritten_ = first_ == First::kOverwritten;
    }
    co_return tl::unexpected(answer_);
  }

  Task<StoreResult<store::TxnResult>> thenTicket(store::TxnRequest request) {
    is_overwritten_ = false;
    const auto first = co_await client_.txn(std::move(late_));
    EXPECT_TRUE(first && first->succeeded);
    store::TxnRequest overwriting;
    overwriting.success.emplace_back(store::PutOp{incarnationKey("uuid"), "another's", 0});
    const auto overwritten = co_await client_.txn(std::move(overwriting));
    EXPECT_TRUE(overwritten && overwritten->succeeded);
    auto answer = co_await client_.txn(std::move(request));
    co_return answer;
  }

  Task<StoreResult<void>> losesTheRevocation() {
    const auto first = co_await client_.txn(std::move(late_));
    EXPECT_TRUE(first && first->succeeded);
    co_return tl::unexpected(StoreError{ErrorCode::kDeadlineExceeded, "no answer in time"});
  }

  const First first_;
  const StoreError answer_;
  store::TxnRequest late_;
  bool answered_ = false;
  bool late_is_due_ = false;
  bool is_overwritten_ = false;
};

class ClaimTest : public testing::Test {
 protected:
  ~ClaimTest() override { thread_.stop(); }

  // The lease of the name that is claimed, of which the first answer is this one.
  int64_t claim(UnclearStore::First first, StoreError answer) {
    UnclearStore store(client_, first, std::move(answer));
    const auto [name, lease] = claim(store);
    EXPECT_EQ(name, "worker1.tf.local.");
    revocations_ = store.revocations;
    late_ = store.late;
    return lease;
  }
  // The name, and its lease.
  std::pair<std::string, int64_t> claim(store::Store& store) {
    Context context{thread_, store, lifetime_, trouble_, counters_, random_, jitter_, round_trip_, {}};
    OwnKeyObserver own_key;
    Claim claim(context, options(), own_key);
    std::promise<Claim::ClaimOutcome> outcome;
    thread_.spawn(run(claim, outcome));
    EXPECT_EQ(outcome.get_future().get(), Claim::ClaimOutcome::kClaimed);
    onThread(thread_, [] {});  // so the task has ended
    return {claim.slot().name, claim.lease().id};
  }
  // Of nodes with this limit.
  static Task<void> putTickets(store::Store& store, int64_t limit, int count, std::promise<void>& done) {
    constexpr int kAtOnce = 100;
    const std::string prefix = ticketPrefix(slots::NamePattern::parse("worker{{.ID}}.tf.local.", limit).value());
    for (int put = 0; put < count;) {
      store::TxnRequest request;
      for (int i = 0; i < kAtOnce && put < count; ++i, ++put)
        request.success.emplace_back(store::PutOp{prefix + std::to_string(put), "", 0});
      const auto answer = co_await store.txn(std::move(request));
      EXPECT_TRUE(answer && answer->succeeded);
    }
    done.set_value();
  }
  static Task<void> run(Claim& claim, std::promise<Claim::ClaimOutcome>& outcome) {
    auto running = claim.run(0, Claim::WhenFull::kWait);
    outcome.set_value(co_await running);
  }
  static Claim::Options options() {
    Claim::Options made{.pattern = slots::NamePattern::parse("worker{{.ID}}.tf.local.", 3).value(), .record = {}};
    made.record.id = "uuid";
    return made;
  }
  static etcd::Client::Options clientOptions(const EtcdServer& server) {
    etcd::Client::Options options;
    options.endpoints = {server.endpoint()};
    return options;
  }
  // Of the name, as etcd has it.
  std::string leaseInEtcd() { return server_.ctl({"get", "worker1.tf.local.", "--write-out=fields"}); }

  EtcdServer server_;
  Counters counters_;
  KernelRandom random_;
  Jitter jitter_{random_};
  RoundTrip round_trip_{20s, {}};
  const std::unique_ptr<etcd::CompletionThread> owned_thread_ = etcd::CompletionThread::make().value();
  etcd::CompletionThread& thread_ = *owned_thread_;
  etcd::Client client_{thread_, clientOptions(server_), {}};
  Lifetime lifetime_{thread_};
  ErrorLogThrottle trouble_{Logger()};
  int revocations_ = 0;
  bool late_ = false;
};

TEST_F(ClaimTest, ALostAnswerIsReadBack) {
  const int64_t lease = claim(UnclearStore::First::kDone, {ErrorCode::kDeadlineExceeded, "no answer in time"});
  EXPECT_EQ(revocations_, 0);
  EXPECT_NE(leaseInEtcd().find("\"Lease\" : " + std::to_string(lease)), std::string::npos) << leaseInEtcd();
}

// etcd has done the last ones that it had no space for (etcd_model_test.cc).
TEST_F(ClaimTest, ARefusalForWantOfSpaceIsReadBack) {
  const int64_t lease =
      claim(UnclearStore::First::kDone, {ErrorCode::kNoSpace, "etcdserver: mvcc: database space exceeded"});
  EXPECT_EQ(revocations_, 0);
  EXPECT_NE(leaseInEtcd().find("\"Lease\" : " + std::to_string(lease)), std::string::npos) << leaseInEtcd();
}

TEST_F(ClaimTest, WhatMayStillComeIsRuledOutBeforeTheNextTry) {
  claim(UnclearStore::First::kLate, {ErrorCode::kDeadlineExceeded, "no answer in time"});
  EXPECT_EQ(revocations_, 0) << "the lease, and the place in the queue, are kept";
  EXPECT_TRUE(late_) << "the first claim comes when the second one is done";
  EXPECT_EQ(server_.ctl({"get", "--prefix", "/idetcd/queue/", "--keys-only"}), "");
}

// What was asked for may be done at any time, so the name that is there now is not kept.
TEST_F(ClaimTest, ANameThatComesAfterTheRevocationOfItsLeaseWasSentIsGivenUp) {
  const int64_t lease =
      claim(UnclearStore::First::kRevoked, {ErrorCode::kNoSpace, "etcdserver: mvcc: database space exceeded"});
  EXPECT_EQ(revocations_, 2);
  EXPECT_NE(leaseInEtcd().find("\"Lease\" : " + std::to_string(lease)), std::string::npos) << leaseInEtcd();
  EXPECT_EQ(server_.ctl({"get", "--prefix", "/idetcd/queue/", "--keys-only"}), "");
}

TEST_F(ClaimTest, NoTicketIsPutBesideANameWhoseIncarnationIsOverwritten) {
  const int64_t lease = claim(UnclearStore::First::kOverwritten, {ErrorCode::kDeadlineExceeded, "no answer in time"});
  EXPECT_EQ(revocations_, 0);
  EXPECT_NE(leaseInEtcd().find("\"Lease\" : " + std::to_string(lease)), std::string::npos) << leaseInEtcd();
  EXPECT_EQ(server_.ctl({"get", "--prefix", "worker2", "--keys-only"}), "");
  EXPECT_EQ(server_.ctl({"get", "--prefix", "/idetcd/queue/", "--keys-only"}), "");
}

TEST_F(ClaimTest, AnyNumberOfTicketsThatCannotUseWhatIsFreeHoldsNobodyUp) {
  server_.ctl({"put", "worker1.tf.local.", "{}"});
  std::promise<void> done;
  thread_.spawn(putTickets(client_, 1, 1001, done));  // more than a look at the queue reads at first
  done.get_future().wait();
  EXPECT_EQ(claim(client_).first, "worker2.tf.local.");
}

}  // namespace
}  // namespace idetcd::naming
