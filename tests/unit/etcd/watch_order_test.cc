// The watch against an etcd that says what a test wants it to say: real ones do so only under load, and rarely.
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <etcdserverpb/rpc.grpc.pb.h>
#include <grpcpp/grpcpp.h>

#include "client_fixture.h"

namespace idetcd::etcd {
namespace {

namespace pb = etcdserverpb;

// One stream at a time. It confirms each range, and then sends what the test wants.
class FakeWatch final : public pb::Watch::Service {
 public:
  FakeWatch() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeWatch() override {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    news_.notify_all();
    server_->Shutdown(std::chrono::system_clock::now());
  }
  std::string endpoint() const { return "127.0.0.1:" + std::to_string(port_); }
  void send(pb::WatchResponse response) {
    const std::lock_guard lock(mutex_);
    responses_.push_back(std::move(response));
    news_.notify_all();
  }

 private:
  grpc::Status Watch(grpc::ServerContext* context,
                     grpc::ServerReaderWriter<pb::WatchResponse, pb::WatchRequest>* stream) override {
    pb::WatchRequest request;
    for (int64_t id = 0; id < ranges_; ++id) {
      if (!stream->Read(&request)) return grpc::Status::OK;
      pb::WatchResponse created;
      created.mutable_header()->set_revision(100);
      created.mutable_header()->set_cluster_id(7);
      created.set_watch_id(id);
      created.set_created(true);
      stream->Write(created);
    }
    std::unique_lock lock(mutex_);
    while (!ended_ && !context->IsCancelled()) {
      if (responses_.empty()) {
        news_.wait_for(lock, 10ms);
        continue;
      }
      const pb::WatchResponse response = std::move(responses_.front());
      responses_.pop_front();
      lock.unlock();
      stream->Write(response);
      lock.lock();
    }
    return grpc::Status::OK;
  }

 public:
  int64_t ranges_ = 1;

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<pb::WatchResponse> responses_;
  bool ended_ = false;
};

pb::WatchResponse changes(int64_t id, const std::vector<int64_t>& revisions, bool fragment = false) {
  pb::WatchResponse response;
  response.mutable_header()->set_revision(revisions.back());
  response.set_watch_id(id);
  response.set_fragment(fragment);
  for (const int64_t revision : revisions) {
    auto& event = *response.add_events();
    event.mutable_kv()->set_key("k");
    event.mutable_kv()->set_mod_revision(revision);
  }
  return response;
}

pb::WatchResponse progress(int64_t id, int64_t revision) {
  pb::WatchResponse response;
  response.mutable_header()->set_revision(revision);
  response.set_watch_id(id);
  return response;
}

std::vector<int64_t> revisionsOf(const WatchBatch& batch) {
  std::vector<int64_t> revisions;
  for (const WatchEvent& event : batch.events) revisions.push_back(event.kv.mod_revision);
  return revisions;
}

// etcd 3.4.23 sends a reader that stood still older events after newer ones.
TEST(WatchOrder, AChangeAfterALaterOneEndsTheStreamAndIsNotDelivered) {
  FakeWatch fake;
  BlockingClient etcd(optionsFor({fake.endpoint()}));
  auto watch = etcd.watch(KeyRange::single("k"), 101);
  ASSERT_TRUE(succeeded(watch));
  fake.send(changes(0, {101, 102, 102}));
  fake.send(changes(0, {108}));
  fake.send(changes(0, {105}));
  fake.send(changes(0, {109}));
  auto batch = etcd.next(*watch);
  ASSERT_TRUE(succeeded(batch));
  EXPECT_EQ(revisionsOf(*batch), (std::vector<int64_t>{101, 102, 102})) << "two changes of one revision are in order";
  batch = etcd.next(*watch);
  ASSERT_TRUE(succeeded(batch));
  EXPECT_EQ(revisionsOf(*batch), (std::vector<int64_t>{108}));
  EXPECT_TRUE(failedWith(etcd.next(*watch), ErrorCode::kDisordered));
  EXPECT_TRUE(failedWith(etcd.next(*watch), ErrorCode::kDisordered)) << "and goes on saying it";
}

TEST(WatchOrder, TheAnswerToAProgressRequestIsNoEndOfFragments) {
  FakeWatch fake;
  BlockingClient etcd(optionsFor({fake.endpoint()}));
  auto watch = etcd.watch(KeyRange::single("k"), 101);
  ASSERT_TRUE(succeeded(watch));
  fake.send(changes(0, {101, 102}, true));
  fake.send(progress(-1, 110));
  fake.send(changes(0, {102, 103}));
  auto batch = etcd.next(*watch);
  ASSERT_TRUE(succeeded(batch));
  EXPECT_TRUE(batch->events.empty());
  EXPECT_LE(batch->resume_revision, 101) << "of what is in fragments nothing has been delivered, whatever has come";
  batch = etcd.next(*watch);
  ASSERT_TRUE(succeeded(batch));
  EXPECT_EQ(revisionsOf(*batch), (std::vector<int64_t>{101, 102, 102, 103}));
  EXPECT_EQ(batch->resume_revision, 104);
}

TEST(WatchOrder, WhatIsOlderThanTheStartIsSkipped) {
  FakeWatch fake;
  BlockingClient etcd(optionsFor({fake.endpoint()}));
  auto watch = etcd.watch(KeyRange::single("k"), 101);
  ASSERT_TRUE(succeeded(watch));
  fake.send(changes(0, {98, 99, 101}));
  const auto batch = etcd.next(*watch);
  ASSERT_TRUE(succeeded(batch));
  EXPECT_EQ(revisionsOf(*batch), (std::vector<int64_t>{101}));
}

TEST(WatchOrder, EachRangeHasAnOrderAndAPlaceOfItsOwn) {
  FakeWatch fake;
  fake.ranges_ = 2;
  BlockingClient etcd(optionsFor({fake.endpoint()}));
  std::vector<WatchRange> ranges{{KeyRange::prefix("a"), 90}, {KeyRange::prefix("b"), 95}};
  auto watch = await(etcd.thread, etcd.client.watch(std::move(ranges)));
  ASSERT_TRUE(succeeded(watch));
  fake.send(changes(1, {104}));
  fake.send(changes(0, {102}));
  fake.send(progress(1, 110));
  auto batch = etcd.next(*watch);
  ASSERT_TRUE(succeeded(batch));
  EXPECT_EQ(std::pair(batch->range, batch->resume_revision), std::pair(size_t{1}, int64_t{105}));
  batch = etcd.next(*watch);
  ASSERT_TRUE(succeeded(batch));
  EXPECT_EQ(std::pair(batch->range, batch->resume_revision), std::pair(size_t{0}, int64_t{103}));
  batch = etcd.next(*watch);
  ASSERT_TRUE(succeeded(batch));
  EXPECT_EQ(std::pair(batch->range, batch->resume_revision), std::pair(size_t{1}, int64_t{111}));
}

}  // namespace
}  // namespace idetcd::etcd
