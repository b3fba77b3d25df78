#include "founding/message.h"

#include <tuple>

#include "base/hash.h"
#include "founding.pb.h"
#include "node/uuid.h"

namespace idetcd::founding {

namespace {

constexpr uint64_t kMaxRound = uint64_t{1} << 48;
constexpr size_t kHashBytes = sizeof(uint64_t);

// --- to protobuf ---

void put(wire::Address& to, const SocketAddress& from) {
  to.set_ip(from.ip.data(), from.ip.size());
  to.set_port(from.port);
}

void put(wire::Member& to, const Member& from) {
  to.set_uuid(from.uuid);
  to.set_start(from.start);
}

void put(wire::Ballot& to, const Ballot& from) {
  to.set_round(from.round);
  to.set_proposer(from.proposer);
}

void put(wire::Machine& to, const Machine& from) {
  put(*to.mutable_member(), from.member);
  for (const SocketAddress& address : from.addresses) put(*to.add_addresses(), address);
  to.set_elector(from.elector);
  to.set_durable(from.durable);
  to.set_token(from.token);
  to.set_expect(from.expect);
  to.set_cluster(from.cluster);
  to.set_can_vote(from.can_vote);
}

void put(wire::Voter& to, const Voter& from) {
  to.set_uuid(from.uuid);
  put(*to.mutable_address(), from.address);
}

void put(wire::Value& to, const Value& from) {
  to.set_cluster(from.cluster);
  for (const Member& member : from.members) put(*to.add_members(), member);
  for (const Voter& voter : from.voters) put(*to.add_voters(), voter);
  to.set_token_base(from.token_base);
}

void put(wire::Acceptance& to, const Acceptance& from) {
  put(*to.mutable_ballot(), from.ballot);
  put(*to.mutable_value(), from.value);
}

struct BodyWriter {
  wire::Message& to;

  void operator()(const HelloRequest& body) const { put(*to.mutable_hello_request()->mutable_machine(), body.machine); }
  void operator()(const HelloResponse& body) const {
    wire::HelloResponse& response = *to.mutable_hello_response();
    put(*response.mutable_machine(), body.machine);
    for (const SocketAddress& peer : body.peers) put(*response.add_peers(), peer);
    if (body.cluster) put(*response.mutable_cluster(), *body.cluster);
    for (const Voter& voter : body.voters) put(*response.add_voters(), voter);
    response.set_connected(body.connected);
  }
  void operator()(const Prepare& body) const {
    to.mutable_prepare()->set_to(body.to);
    put(*to.mutable_prepare()->mutable_ballot(), body.ballot);
  }
  void operator()(const Promise& body) const {
    put(*to.mutable_promise()->mutable_machine(), body.machine);
    put(*to.mutable_promise()->mutable_ballot(), body.ballot);
    if (body.accepted) put(*to.mutable_promise()->mutable_accepted(), *body.accepted);
  }
  void operator()(const Accept& body) const {
    to.mutable_accept()->set_to(body.to);
    put(*to.mutable_accept()->mutable_proposal(), body.proposal);
  }
  void operator()(const Accepted& body) const {
    to.mutable_accepted()->set_from(body.from);
    put(*to.mutable_accepted()->mutable_ballot(), body.ballot);
  }
  void operator()(const Refused& body) const {
    put(*to.mutable_refused()->mutable_ballot(), body.ballot);
    put(*to.mutable_refused()->mutable_promised(), body.promised);
  }
  void operator()(const Decided& body) const {
    to.mutable_decided()->set_to(body.to);
    put(*to.mutable_decided()->mutable_value(), body.value);
  }
};

// --- from protobuf: false if it is nothing that a machine sends ---

bool get(const wire::Address& from, SocketAddress& to) {
  if ((from.ip().size() != 4 && from.ip().size() != 16) || from.port() == 0 || from.port() > UINT16_MAX) return false;
  to.ip = IpAddress::fromBytes({reinterpret_cast<const uint8_t*>(from.ip().data()), from.ip().size()});
  to.port = static_cast<uint16_t>(from.port());
  return true;
}

bool get(const wire::Member& from, Member& to) {
  to = {from.start(), from.uuid()};
  return node::isUuid(to.uuid);
}

bool get(const wire::Ballot& from, Ballot& to) {
  to = {from.round(), from.proposer()};
  return to.round > 0 && to.round <= kMaxRound && node::isUuid(to.proposer);
}

template <typename Addresses>
bool getAddresses(const Addresses& from, size_t most, std::vector<SocketAddress>& to) {
  if (static_cast<size_t>(from.size()) > most) return false;
  for (const wire::Address& address : from) {
    if (!get(address, to.emplace_back())) return false;
  }
  return true;
}

bool get(const wire::Machine& from, Machine& to) {
  to.elector = from.elector();
  to.durable = from.durable();
  to.token = from.token();
  to.expect = from.expect();
  to.cluster = from.cluster();
  to.can_vote = from.can_vote();
  return get(from.member(), to.member) && getAddresses(from.addresses(), kMaxAddresses, to.addresses) &&
         !to.addresses.empty() && to.token >= 0 && to.token < INT64_MAX && (to.cluster.empty() || node::isUuid(to.cluster));
}

template <typename Voters>
bool getVoters(const Voters& from, std::vector<Voter>& to) {
  if (static_cast<size_t>(from.size()) > kMaxMachines) return false;
  for (const wire::Voter& voter : from) {
    to.push_back({voter.uuid(), {}});
    if (!node::isUuid(voter.uuid()) || !get(voter.address(), to.back().address)) return false;
  }
  return true;
}

bool get(const wire::Value& from, Value& to) {
  to.cluster = from.cluster();
  to.token_base = from.token_base();
  if (!node::isUuid(to.cluster) || to.token_base <= 0) return false;
  const auto count = static_cast<size_t>(from.members_size());
  if (count == 0 || count > kMaxMachines || from.voters_size() == 0 || static_cast<size_t>(from.voters_size()) > count)
    return false;
  for (const wire::Member& member : from.members()) {
    if (!get(member, to.members.emplace_back())) return false;
  }
  return getVoters(from.voters(), to.voters);
}

bool get(const wire::Acceptance& from, Acceptance& to) {
  return get(from.ballot(), to.ballot) && get(from.value(), to.value);
}

template <typename From, typename To>
bool getOptional(bool there, const From& from, std::optional<To>& to) {
  return !there || get(from, to.emplace());
}

bool get(const wire::HelloRequest& from, HelloRequest& to) { return get(from.machine(), to.machine); }

bool get(const wire::HelloResponse& from, HelloResponse& to) {
  to.connected = from.connected();
  return get(from.machine(), to.machine) && getAddresses(from.peers(), kMaxPeers, to.peers) &&
         getOptional(from.has_cluster(), from.cluster(), to.cluster) && getVoters(from.voters(), to.voters);
}

bool get(const wire::Prepare& from, Prepare& to) {
  to.to = from.to();
  return get(from.ballot(), to.ballot);
}

bool get(const wire::Promise& from, Promise& to) {
  return get(from.machine(), to.machine) && get(from.ballot(), to.ballot) &&
         getOptional(from.has_accepted(), from.accepted(), to.accepted);
}

bool get(const wire::Accept& from, Accept& to) {
  to.to = from.to();
  return get(from.proposal(), to.proposal);
}

bool get(const wire::Accepted& from, Accepted& to) {
  to.from = from.from();
  return node::isUuid(to.from) && get(from.ballot(), to.ballot);
}

bool get(const wire::Refused& from, Refused& to) {
  return get(from.ballot(), to.ballot) && get(from.promised(), to.promised);
}

bool get(const wire::Decided& from, Decided& to) {
  to.to = from.to();
  return get(from.value(), to.value);
}

template <typename To, typename From>
std::optional<Body> bodyFrom(const From& from) {
  To to;
  if (!get(from, to)) return std::nullopt;
  return to;
}

std::optional<Body> bodyOf(const wire::Message& from) {
  switch (from.body_case()) {
    case wire::Message::kHelloRequest:
      return bodyFrom<HelloRequest>(from.hello_request());
    case wire::Message::kHelloResponse:
      return bodyFrom<HelloResponse>(from.hello_response());
    case wire::Message::kPrepare:
      return bodyFrom<Prepare>(from.prepare());
    case wire::Message::kPromise:
      return bodyFrom<Promise>(from.promise());
    case wire::Message::kAccept:
      return bodyFrom<Accept>(from.accept());
    case wire::Message::kAccepted:
      return bodyFrom<Accepted>(from.accepted());
    case wire::Message::kRefused:
      return bodyFrom<Refused>(from.refused());
    case wire::Message::kDecided:
      return bodyFrom<Decided>(from.decided());
    case wire::Message::BODY_NOT_SET:
      break;
  }
  return std::nullopt;
}

std::string hashOf(std::string_view bytes) {
  const uint64_t hash = hashBytes(bytes.data(), bytes.size(), 0);
  return {reinterpret_cast<const char*>(&hash), kHashBytes};
}

bool parse(google::protobuf::MessageLite& to, std::string_view bytes) {
  return to.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

}  // namespace

size_t votersFor(size_t machines) { return machines <= 2 ? 1 : machines <= 9 ? 3 : 5; }

int64_t Value::numberOf(std::string_view uuid) const {
  const auto found = std::find_if(members.begin(), members.end(), [uuid](const Member& m) { return m.uuid == uuid; });
  return found == members.end() ? 0 : found - members.begin() + 1;
}

bool yields(const Value& one, const Value& other) {
  const auto rank = [](const Value& value) {
    const size_t founders = value.members.size();
    return std::tuple(-static_cast<int64_t>(founders), value.members[(founders - 1) / 2].start, value.cluster);
  };
  return rank(one) > rank(other);
}

std::string encode(const Message& message) {
  wire::Message to;
  to.set_port(message.port);
  std::visit(BodyWriter{to}, message.body);
  return to.SerializeAsString();
}

std::optional<Message> decode(std::string_view bytes) {
  wire::Message from;
  if (!parse(from, bytes) || from.port() == 0 || from.port() > UINT16_MAX) return std::nullopt;
  std::optional<Body> body = bodyOf(from);
  if (!body) return std::nullopt;
  return Message{static_cast<uint16_t>(from.port()), *std::move(body)};
}

std::string encode(const Record& record) {
  wire::Record to;
  to.set_uuid(record.uuid);
  if (record.promised.round > 0) put(*to.mutable_promised(), record.promised);
  if (record.accepted) put(*to.mutable_accepted(), *record.accepted);
  if (record.decided) put(*to.mutable_decided(), *record.decided);
  for (const Voter& voter : record.voters) put(*to.add_voters(), voter);
  if (record.next) put(*to.mutable_next(), *record.next);
  std::string bytes = to.SerializeAsString();
  return bytes += hashOf(bytes);
}

Result<Record> decodeRecord(std::string_view bytes, std::string_view uuid) {
  if (bytes.size() < kHashBytes) return fail("the record of the founding is cut off");
  const std::string_view content = bytes.substr(0, bytes.size() - kHashBytes);
  wire::Record from;
  Record record;
  if (bytes.substr(content.size()) != hashOf(content) || !parse(from, content) ||
      (from.has_promised() && !get(from.promised(), record.promised)) ||
      !getOptional(from.has_accepted(), from.accepted(), record.accepted) ||
      !getOptional(from.has_decided(), from.decided(), record.decided) ||
      !getVoters(from.voters(), record.voters) || !getOptional(from.has_next(), from.next(), record.next))
    return fail("the record of the founding is damaged");
  record.uuid = from.uuid();
  if (record.uuid != uuid) return fail("the record of the founding is of another machine");
  return record;
}

}  // namespace idetcd::founding
