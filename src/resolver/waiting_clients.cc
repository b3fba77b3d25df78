#include "resolver/waiting_clients.h"

namespace idetcd::resolver {

namespace {

// How many questions are looked at for one that can give way: the first almost always can.
constexpr int kMaxLooks = 16;

}  // namespace

size_t WaitingClients::IdHash::operator()(const ClientId& id) const {
  const uint64_t words[] = {id.address, uint64_t{id.port} << 8 | static_cast<uint8_t>(id.kind)};
  return hashBytes(words, sizeof(words), seed);
}

size_t WaitingClients::KeyHash::operator()(const Key& key) const { return hashBytes(&key, sizeof(key), seed); }

WaitingClients::WaitingClients(size_t max_waiting_for_one)
    : max_waiting_for_one_(max_waiting_for_one),
      seed_(randomHashSeed()),
      clients_(0, IdHash{seed_}),
      groups_by_key_(0, KeyHash{seed_}) {}

WaitingClients::~WaitingClients() {
  while (hasEvicted()) takeEvicted();
}

void WaitingClients::forget(Question& question) {
  while (question.waiting_ > 0) take(question);
  settle(question);
}

const WaitingClients::Client* WaitingClients::findClient(const ClientId& id) const {
  const auto found = clients_.find(id);
  return found != clients_.end() ? found->second : nullptr;
}

// Most questions are one client's.
WaitingClients::Group* WaitingClients::findGroup(const Question& question, const Client& client) const {
  Group* first = question.first_group_;
  if (first != nullptr && first->client == &client) return first;
  if (question.groups_ <= (first != nullptr ? 1u : 0u)) return nullptr;
  const auto found = groups_by_key_.find({&question, &client});
  return found != groups_by_key_.end() ? found->second : nullptr;
}

WaitingClients::Group& WaitingClients::groupOf(Question& question, const ClientId& id) {
  Client*& client = clients_[id];
  if (client == nullptr) {
    client = make<Client>(client_pool_);
    client->id = id;
  } else if (Group* group = findGroup(question, *client)) {
    return *group;
  }
  Group* group = make<Group>(group_pool_);
  group->client = client;
  group->question = &question;
  if (question.first_group_ == nullptr) {
    question.first_group_ = group;
  } else {
    groups_by_key_.emplace(Key{&question, client}, group);
  }
  ++question.groups_;
  client->groups.append(*group);
  by_questions_.rise(*client);
  return *group;
}

// REQUIRES: the group is empty. The client goes with its last one.
void WaitingClients::leave(Group& group) {
  assert(group.waiters.empty());
  Question& question = *group.question;
  Client& client = *group.client;
  if (question.first_group_ == &group) {
    question.first_group_ = nullptr;
  } else {
    groups_by_key_.erase({&question, &client});
  }
  --question.groups_;
  client.groups.remove(group);
  by_questions_.fall(client);
  destroy(&group, group_pool_);
  if (!client.groups.empty()) return;
  clients_.erase(client.id);
  destroy(&client, client_pool_);
}

WaitingClients::Admission WaitingClients::judge(const Question& question, const QueryOrigin& origin) const {
  const ClientId& id = origin.client;
  if (id.isOurselves()) return Admission::kWait;
  const Client* client = findClient(id);
  const Group* group = client != nullptr ? findGroup(question, *client) : nullptr;
  const bool may_be_forged = origin.transport == resolve::Transport::kUdp && !origin.background;
  if (group != nullptr && may_be_forged) {
    for (const Waiter* w = group->waiters.first(); w != nullptr; w = decltype(group->waiters)::next(*w)) {
      if (w->port == origin.port && w->id == origin.id && !w->background) return Admission::kAbsorb;
    }
  }
  const bool bounded = id.kind != ClientId::Kind::kLoopback && !origin.urgent;
  if (bounded && question.waiting_ >= max_waiting_for_one_) return Admission::kTooMany;
  if (group == nullptr) return Admission::kWait;
  if (group->size >= kMaxRepeats) return Admission::kTooMany;
  return may_be_forged && group->size >= kFullAnswers ? Admission::kWaitForLittle : Admission::kWait;
}

void WaitingClients::add(Question& question, const QueryOrigin& origin, size_t response_limit,
                         Forwarder::Callback done) {
  question.home_ = this;
  Waiter* waiter = make<Waiter>(waiter_pool_);
  waiter->done = std::move(done);
  waiter->port = origin.port;
  waiter->id = origin.id;
  waiter->background = origin.background;
  waiter->urgent = origin.urgent;
  waiter->response_limit = response_limit;
  question.waiters_.append(*waiter);
  ++question.waiting_;
  ++size_;
  if (origin.client.isOurselves()) return;
  Group& group = groupOf(question, origin.client);
  waiter->group = &group;
  group.waiters.append(*waiter);
  ++group.size;
  by_waiting_.rise(*group.client);
}

void WaitingClients::detach(Waiter& waiter, Question& question) {
  question.waiters_.remove(waiter);
  --question.waiting_;
  --size_;
  Group* group = std::exchange(waiter.group, nullptr);
  if (group == nullptr) return;
  group->waiters.remove(waiter);
  by_waiting_.fall(*group->client);
  if (--group->size == 0) leave(*group);
}

void WaitingClients::begin(Question& question) {
  question.home_ = this;
  question.since_ = BootClock::now();
  question.in_flight_ = true;
  in_flight_.append(question);
}

void WaitingClients::settle(Question& question) {
  if (std::exchange(question.in_flight_, false)) in_flight_.remove(question);
}

WaitingClients::Taken WaitingClients::take(Question& question) {
  Waiter* waiter = question.waiters_.first();
  assert(waiter != nullptr);
  detach(*waiter, question);
  Taken taken{.done = std::move(waiter->done), .response_limit = waiter->response_limit};
  destroy(waiter, waiter_pool_);
  return taken;
}

QueryOrigin WaitingClients::originOf(const Question& question) {
  QueryOrigin origin;
  if (const Waiter* first = question.waiters_.first(); first != nullptr && first->group != nullptr) {
    origin.client = first->group->client->id;
    origin.urgent = first->urgent;
  }
  return origin;
}

// --- which query gives way ---

// Returns the question if no query waits for it any more.
WaitingClients::Question* WaitingClients::giveWay(Waiter& waiter) {
  Question& question = *waiter.group->question;
  detach(waiter, question);
  evicted_.append(waiter);
  ++evicted_count_;
  return question.waiting_ == 0 ? &question : nullptr;
}

WaitingClients::Question* WaitingClients::giveWay(Group& group) {
  Question* abandoned = nullptr;
  for (size_t left = group.size; left > 0; --left) abandoned = giveWay(*group.waiters.first());
  return abandoned;
}

// Whether no other client waits for the question.
bool WaitingClients::isAlone(const Group& group) { return group.size == group.question->waiting_; }

// Of a client's questions in flight the one that was asked first; rather one that no other client waits for, since the
// end of another one makes no room.
WaitingClients::Group* WaitingClients::longestWaiting(const Client& client, const Question* exception) {
  Group* oldest = nullptr;
  Group* group = client.groups.first();
  for (int i = 0; i < kMaxLooks && group != nullptr; ++i, group = decltype(client.groups)::next(*group)) {
    if (!group->question->in_flight_ || group->question == exception) continue;
    if (isAlone(*group)) return group;
    if (oldest == nullptr) oldest = group;
  }
  return oldest;
}

bool WaitingClients::hasHadItsTime(const Question& question, BootClock::time_point now) {
  return now - question.since_ >= kFairTime;
}

WaitingClients::Room WaitingClients::makeRoomToAsk(const QueryOrigin& origin, const Question* exception) {
  const Client* client = findClient(origin.client);
  size_t held = client != nullptr ? client->questions : 0;
  if (exception != nullptr && held > 0) --held;
  for (int i = 0; i < kMaxLooks; ++i) {
    Client* largest = by_questions_.toGiveWay(held);
    if (largest == nullptr) break;
    Group* group = longestWaiting(*largest, exception);
    if (group == nullptr) break;
    if (Question* abandoned = giveWay(*group)) return {.made = true, .abandoned = abandoned};
  }
  const bool must = origin.client.isOurselves() || origin.urgent;
  if (held > 0 && !must) return {};
  const auto now = BootClock::now();
  Question* question = in_flight_.first();
  for (int i = 0; i < kMaxLooks && question != nullptr; ++i, question = decltype(in_flight_)::next(*question)) {
    if (!must && !hasHadItsTime(*question, now)) break;
    Group* group = question->first_group_;
    if (question == exception || group == nullptr || !isAlone(*group)) continue;
    return {.made = true, .abandoned = giveWay(*group)};
  }
  return {};
}

WaitingClients::Room WaitingClients::makeRoomToWait(const QueryOrigin& origin) {
  const Client* client = findClient(origin.client);
  const size_t held = client != nullptr ? client->waiting : 0;
  if (Client* largest = by_waiting_.toGiveWay(held)) {
    Group* group = longestWaiting(*largest, nullptr);
    if (group == nullptr) return {};
    return {.made = true, .abandoned = giveWay(*group->waiters.last())};
  }
  const bool must = origin.client.isOurselves() || origin.urgent;
  if (held > 0 && !must) return {};
  Question* oldest = in_flight_.first();
  if (oldest == nullptr || (!must && !hasHadItsTime(*oldest, BootClock::now()))) return {};
  Waiter* last = oldest->waiters_.last();
  if (last == nullptr || last->group == nullptr) return {};
  return {.made = true, .abandoned = giveWay(*last)};
}

Forwarder::Callback WaitingClients::takeEvicted() {
  assert(hasEvicted());
  Waiter* waiter = evicted_.first();
  evicted_.remove(*waiter);
  --evicted_count_;
  Forwarder::Callback done = std::move(waiter->done);
  destroy(waiter, waiter_pool_);
  return done;
}

}  // namespace idetcd::resolver
