#include "etcd/cluster.h"

#include "etcd/client_internal.h"

namespace idetcd::etcd {
namespace {

ClusterMember fromProto(const pb::Member& member) {
  return {.id = member.id(),
          .name = member.name(),
          .peer_urls = {member.peerurls().begin(), member.peerurls().end()},
          .client_urls = {member.clienturls().begin(), member.clienturls().end()},
          .is_learner = member.islearner()};
}

template <typename Response>
Task<StoreResult<void>> withoutAnswer(Task<StoreResult<Response>> call) {
  const StoreResult<Response> response = co_await call;
  if (!response) co_return tl::unexpected<StoreError>(response.error());
  co_return StoreResult<void>{};
}

template <typename Request>
Request toMember(uint64_t id) {
  Request request;
  request.set_id(id);
  return request;
}

}  // namespace

Task<StoreResult<MemberList>> Cluster::memberList() const {
  auto call = client_.impl_->call(&pb::Cluster::Stub::PrepareAsyncMemberList, pb::MemberListRequest(),
                                  CallTraits{.repeatable = true});
  const auto response = co_await call;
  if (!response) co_return tl::unexpected<StoreError>(response.error());
  MemberList list{.cluster_id = response->header().cluster_id(), .members = {}};
  for (const pb::Member& member : response->members()) list.members.push_back(fromProto(member));
  co_return list;
}

Task<StoreResult<uint64_t>> Cluster::memberAdd(std::vector<std::string> peer_urls, bool as_learner) const {
  pb::MemberAddRequest request;
  for (std::string& url : peer_urls) request.add_peerurls(std::move(url));
  request.set_islearner(as_learner);
  auto call = client_.impl_->call(&pb::Cluster::Stub::PrepareAsyncMemberAdd, std::move(request), CallTraits{});
  const auto response = co_await call;
  if (!response) co_return tl::unexpected<StoreError>(response.error());
  co_return response->member().id();
}

Task<StoreResult<void>> Cluster::memberPromote(uint64_t id) const {
  return withoutAnswer(client_.impl_->call(&pb::Cluster::Stub::PrepareAsyncMemberPromote,
                                           toMember<pb::MemberPromoteRequest>(id), CallTraits{}));
}

Task<StoreResult<void>> Cluster::memberUpdate(uint64_t id, std::vector<std::string> peer_urls) const {
  auto request = toMember<pb::MemberUpdateRequest>(id);
  for (std::string& url : peer_urls) request.add_peerurls(std::move(url));
  return withoutAnswer(client_.impl_->call(&pb::Cluster::Stub::PrepareAsyncMemberUpdate, std::move(request),
                                           CallTraits{.repeatable = true}));
}

Task<StoreResult<void>> Cluster::memberRemove(uint64_t id) const {
  return withoutAnswer(client_.impl_->call(&pb::Cluster::Stub::PrepareAsyncMemberRemove,
                                           toMember<pb::MemberRemoveRequest>(id), CallTraits{}));
}

Task<StoreResult<MemberStatus>> Cluster::status() const {
  auto call = client_.impl_->call(&pb::Maintenance::Stub::PrepareAsyncStatus, pb::StatusRequest(),
                                  CallTraits{.repeatable = true, .needs_leader = false});
  const auto response = co_await call;
  if (!response) co_return tl::unexpected<StoreError>(response.error());
  const auto says_no_space = [](const std::string& error) { return error.find("NOSPACE") != std::string::npos; };
  co_return MemberStatus{.id = response->header().member_id(),
                         .cluster_id = response->header().cluster_id(),
                         .version = response->version(),
                         .leader = response->leader(),
                         .term = response->raftterm(),
                         .index = response->raftindex(),
                         .revision = response->header().revision(),
                         .bytes = response->dbsize(),
                         .bytes_in_use = response->dbsizeinuse(),
                         .is_learner = response->islearner(),
                         .no_space = std::ranges::any_of(response->errors(), says_no_space)};
}

Task<StoreResult<void>> Cluster::moveLeader(uint64_t to) const {
  pb::MoveLeaderRequest request;
  request.set_targetid(to);
  return withoutAnswer(client_.impl_->call(&pb::Maintenance::Stub::PrepareAsyncMoveLeader, request, CallTraits{}));
}

Task<StoreResult<std::vector<Alarm>>> Cluster::alarms() const {
  auto call = client_.impl_->call(&pb::Maintenance::Stub::PrepareAsyncAlarm, pb::AlarmRequest(),
                                  CallTraits{.repeatable = true});
  const auto response = co_await call;
  if (!response) co_return tl::unexpected<StoreError>(response.error());
  std::vector<Alarm> alarms;
  for (const pb::AlarmMember& alarm : response->alarms())
    alarms.push_back({.member = alarm.memberid(), .kind = static_cast<Alarm::Kind>(alarm.alarm())});
  co_return alarms;
}

Task<StoreResult<void>> Cluster::disarm(Alarm alarm) const {
  pb::AlarmRequest request;
  request.set_action(pb::AlarmRequest::DEACTIVATE);
  request.set_memberid(alarm.member);
  request.set_alarm(static_cast<pb::AlarmType>(alarm.kind));
  return withoutAnswer(
      client_.impl_->call(&pb::Maintenance::Stub::PrepareAsyncAlarm, request, CallTraits{.repeatable = true}));
}

Task<StoreResult<void>> Cluster::compact(int64_t revision) const {
  pb::CompactionRequest request;
  request.set_revision(revision);
  request.set_physical(true);
  return withoutAnswer(client_.impl_->call(&pb::KV::Stub::PrepareAsyncCompact, request, CallTraits{}));
}

Task<StoreResult<void>> Cluster::defragment(std::chrono::nanoseconds timeout) const {
  return withoutAnswer(client_.impl_->call(&pb::Maintenance::Stub::PrepareAsyncDefragment, pb::DefragmentRequest(),
                                           CallTraits{.needs_leader = false, .timeout = timeout}));
}

}  // namespace idetcd::etcd
