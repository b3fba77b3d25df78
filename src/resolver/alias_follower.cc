#include "resolver/alias_follower.h"

#include "dns/message_reader.h"
#include "dns/query.h"

namespace idetcd::resolver {

struct AliasFollower::Chain : std::enable_shared_from_this<AliasFollower::Chain> {
  Chain(const dns::Query& asked, const QueryOrigin& who, const ForwardResult& result, Client waiting)
      : query(asked), origin(who), so_far(result.response), client(std::move(waiting)), deadline(this, [](void* self) {
          fail(static_cast<Chain*>(self)->shared_from_this(), dns::EdeCode::kNoReachableAuthority, "i/o timeout");
        }) {
    query.message = nullptr;  // the client's
    // Two of a client's queries with one ID are one sent twice only if they began with the same name.
    origin.id = static_cast<uint16_t>(origin.id ^ query.hash);
  }

  dns::Query query;
  QueryOrigin origin;
  std::shared_ptr<const StoredResponse> so_far;
  std::unique_ptr<dns::OwnQuery> target;  // what is asked for now
  size_t steps = 0;
  bool for_client = false;  // what has come, or failed to, is for this client at this moment
  bool target_exists = false;  // resolve::QueryOutcome::isNextOfExisting()
  Client client;  // `done` is empty: it has been called
  net::Deadline deadline;
};

// Gets what this server answers late.
class AliasFollower::Sink final : public resolve::ReplySink {
 public:
  Sink(AliasFollower& follower, ChainPtr chain) : follower_(follower), chain_(std::move(chain)) {}
  void send(std::span<const uint8_t> message) override { follower_.onMessage(chain_, message); }
  void noteDropped(resolve::DropReason) override {
    if (chain_->client.done) finish(chain_);
  }

 private:
  AliasFollower& follower_;
  const ChainPtr chain_;
};

class AliasFollower::Deferrer final : public resolve::ReplyDeferrer {
 public:
  Deferrer(AliasFollower& follower, const ChainPtr& chain) : follower_(follower), chain_(chain) {}
  std::unique_ptr<resolve::ReplySink> keepClient() override { return std::make_unique<Sink>(follower_, chain_); }

 private:
  AliasFollower& follower_;
  const ChainPtr& chain_;
};

AliasFollower::AliasFollower(net::EventLoop& loop, Options options)
    : options_(std::move(options)), deadlines_(loop, options_.time) {}

AliasFollower::~AliasFollower() = default;

// The chain lives in the callback that waits for its next answer.
void AliasFollower::follow(const dns::Query& query, const QueryOrigin& origin, const ForwardResult& result,
                           Client client) {
  assert(isUnfinished(result));
  const auto chain = std::make_shared<Chain>(query, origin, result, std::move(client));
  deadlines_.arm(chain->deadline);
  ask(chain);
}

void AliasFollower::ask(const ChainPtr& chain) {
  chain->target = targetQuery(chain->query, chain->query.qtype, *chain->so_far->unfinished);
  const dns::Query& target = chain->target->query();
  Deferrer deferrer(*this, chain);
  resolve::Request request = chain->client.asked.request();
  request.deferrer = &deferrer;
  // An ID of its own for each alias: a client's second question of one name and ID counts as its first one, repeated.
  const auto here =
      askHere(chain->query, target.qtype, chain->so_far->unfinished->wire(), chain->origin.id, request);
  if (!here.isNext()) chain->for_client = true;
  chain->target_exists = here.isNextOfExisting();
  switch (here.kind) {
    case resolve::QueryOutcome::Kind::kAnswer:
      return onMessage(chain, {room_.data(), here.size});
    case resolve::QueryOutcome::Kind::kDrop:
      return finish(chain);
    case resolve::QueryOutcome::Kind::kPending:
      return;
    case resolve::QueryOutcome::Kind::kNext:
      break;
  }
  const auto wait = options_.resolve(target, chain->origin, [this, chain](const ForwardResult& result) {
    if (!chain->client.done) return;  // too late
    ForwardResult room, existing;
    const ForwardResult& said = withoutOwn(chain->target->query(), chain->client.asked, result, room);
    onResult(chain, chain->target_exists ? withoutDenial(said, existing) : said);
  });
  if (!wait) return finish(chain);
  if (*wait == Forwarder::Wait::kForLittle && chain->client.limit) chain->client.limit();
}

// As the client would have asked it in the place of its own.
std::unique_ptr<dns::OwnQuery> AliasFollower::targetQuery(const dns::Query& query, uint16_t qtype,
                                                           const dns::Name& target) const {
  auto asked = std::make_unique<dns::OwnQuery>(target, qtype, query.qclass,
                                               query.flags & (dns::kFlagRd | dns::kFlagCd), options_.hash_seed);
  asked->query().dnssec_ok = query.dnssec_ok;
  return asked;
}

// As the client would have asked it in the place of `query`. Written to room_.
resolve::QueryOutcome AliasFollower::askHere(const dns::Query& query, uint16_t qtype, std::span<const uint8_t> name,
                                             uint16_t id, resolve::Request request) {
  room_.resize(dns::kMaxMessageSize + dns::kReadSlack);
  const size_t size =
      dns::writeQuestion(room_.data(), query.flags & (dns::kFlagRd | dns::kFlagCd), name, qtype, query.qclass);
  dns::store16(room_.data(), id);
  dns::Query target;
  if (dns::parseQuery(room_.data(), size, options_.hash_seed, target) != dns::ParseOutcome::kQuery) std::abort();
  target.dnssec_ok = query.dnssec_ok;
  request.response_limit = dns::kMaxMessageSize;
  request.now = BootClock::now();
  request.is_inner = true;
  ++request.inner_depth;
  return options_.answer_here(target, request);
}

// `unfinished`: a target of which the response says nothing.
AliasFollower::OwnNames AliasFollower::findOwn(const dns::Query& query, resolve::Request request,
                                               const dns::PackedResponse& response,
                                               const std::optional<dns::Name>& unfinished) {
  request.own_only = true;
  request.meter = nullptr;
  OwnNames own;
  bool exists = false;  // the last target
  const auto visit = [&](OtherName kind, std::span<const uint8_t> name) {
    if (kind == OtherName::kHost) {  // one type stands for both
      own.host = !askHere(query, dns::code(dns::RrType::kA), name, 0, request).isNext();
      return !own.host;
    }
    ++own.targets;
    if (unfinished && dns::sameName(name, unfinished->wire())) return true;
    const resolve::QueryOutcome outcome = askHere(query, query.qtype, name, 0, request);
    exists = outcome.isNextOfExisting();
    if (!outcome.isNext()) own.target = dns::Name::fromWire(name);
    return outcome.isNext();
  };
  visitOtherNames(query, response, names_room_, std::ref(visit));
  own.is_denied = exists && response.rcode == dns::Rcode::kNxDomain;
  return own;
}

// NXDOMAIN as NODATA: `result`, or what is written to `room`.
const ForwardResult& AliasFollower::withoutDenial(const ForwardResult& result, ForwardResult& room) {
  if (!result.response || result.rcode != dns::Rcode::kNxDomain) return result;
  auto nodata = std::make_shared<StoredResponse>();
  denyDataOnly(*result.response, *nodata);
  room = result;
  room.rcode = dns::Rcode::kNoError;
  room.response = std::move(nodata);
  return room;
}

bool AliasFollower::mayAnswer(const dns::Query& query, const resolve::Request& request,
                              const dns::PackedResponse& response) {
  const OwnNames own = findOwn(query, request, response, std::nullopt);
  return !own.target && !own.host && !own.is_denied;
}

const ForwardResult& AliasFollower::withoutOwn(const dns::Query& query, const resolve::KeptRequest& asked,
                                               const ForwardResult& result, ForwardResult& room) {
  if (!result.response) return result;
  const StoredResponse& whole = *result.response;
  const OwnNames own = findOwn(query, asked.request(), *whole.packed, whole.unfinished);
  if (!own.target && !own.host) return own.is_denied ? withoutDenial(result, room) : result;
  auto cut = std::make_shared<StoredResponse>();
  if (!own.target) {
    dropAdditional(whole, *cut);
    room = result;
    room.response = std::move(cut);
    return room;
  }
  room = {.response = nullptr,
          .rcode = dns::Rcode::kServFail,
          .ede = dns::EdeCode::kNetworkError,
          .reason = "an answer that cannot be read",
          .next = result.next};
  if (cutResponse(query, whole, own.targets, *own.target, *cut)) {
    room = {.response = std::move(cut), .rcode = dns::Rcode::kNoError, .ede = {}, .reason = {}, .next = result.next};
  }
  return room;
}

// To the question for the target.
void AliasFollower::onMessage(const ChainPtr& chain, std::span<const uint8_t> message) {
  if (!chain->client.done) return;  // too late
  auto response = std::make_shared<StoredResponse>();
  const uint16_t id = dns::load16(message.data());
  if (readUpstreamResponse(message, id, chain->target->query(), *response) != UpstreamVerdict::kAccepted) {
    return fail(chain, dns::EdeCode::kNetworkError, "an answer that cannot be read");
  }
  const dns::Rcode rcode = response->packed->rcode;
  onResult(chain, {.response = std::move(response), .rcode = rcode, .ede = std::nullopt, .reason = {}});
}

void AliasFollower::onResult(const ChainPtr& chain, const ForwardResult& result) {
  if (!result.response) {
    return fail(chain, result.ede.value_or(dns::EdeCode::kNoReachableAuthority), result.reason, result.overloaded);
  }
  switch (result.rcode) {
    case dns::Rcode::kNoError:
    case dns::Rcode::kNxDomain:
      return extend(chain, result.response);
    case dns::Rcode::kServFail:
      return fail(chain, dns::EdeCode::kNoReachableAuthority, "SERVFAIL", result.overloaded);
    default:
      return finish(chain);
  }
}

void AliasFollower::extend(const ChainPtr& chain, const std::shared_ptr<const StoredResponse>& response) {
  const dns::Name target = *chain->so_far->unfinished;
  const auto whole = join(*chain, response);
  if (!whole) return fail(chain, dns::EdeCode::kNetworkError, "a chain of CNAMEs without end");
  chain->so_far = whole;
  if (whole->unfinished && *whole->unfinished != target) {  // else it has no data, and no SOA that says so
    if (++chain->steps == kMaxSteps) return fail(chain, dns::EdeCode::kNetworkError, "too many CNAMEs");
    return ask(chain);
  }
  finish(chain);
}

std::shared_ptr<const StoredResponse> AliasFollower::join(const Chain& chain,
                                                          const std::shared_ptr<const StoredResponse>& response) {
  if (last_.first != chain.so_far || last_.second != response || last_.for_client != chain.for_client) {
    auto whole = std::make_shared<StoredResponse>();
    if (!joinResponses(chain.query, *chain.so_far, chain.target->query(), *response, *whole)) whole = nullptr;
    if (whole && chain.for_client) whole->kind = ResponseKind::kUncacheable;
    last_ = {chain.so_far, response, chain.for_client, std::move(whole)};
  }
  return last_.whole;
}

void AliasFollower::fail(const ChainPtr& chain, dns::EdeCode ede, const std::string& why, bool overloaded) {
  const std::string target = dns::nameToString(chain->so_far->unfinished->data());
  finish(chain, {.response = nullptr,
                 .rcode = dns::Rcode::kServFail,
                 .ede = ede,
                 .reason = fmt::format("{}, which it is an alias of: {}", target, why),
                 .overloaded = overloaded || chain->for_client});
}

// With what there is.
void AliasFollower::finish(const ChainPtr& chain) {
  finish(chain, {.response = chain->so_far, .rcode = chain->so_far->packed->rcode, .ede = std::nullopt, .reason = {}});
}

void AliasFollower::finish(const ChainPtr& chain, const ForwardResult& result) {
  chain->deadline.disarm();
  std::exchange(chain->client.done, nullptr)(result);
}

}  // namespace idetcd::resolver
