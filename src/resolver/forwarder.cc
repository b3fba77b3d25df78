#include "resolver/forwarder.h"

#include <netinet/in.h>
#include <unordered_map>

#include "base/block_pool.h"
#include "dns/wire.h"
#include "resolver/forward_exchange.h"
#include "resolver/forward_files.h"
#include "resolver/special_names.h"
#include "resolver/upstream_choice.h"
#include "resolver/waiting_clients.h"

namespace idetcd::resolver {

namespace {

using dns::EdeCode;
using dns::Rcode;

uint64_t load64(const uint8_t* bytes) {
  uint64_t value = 0;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

uint16_t portOf(const sockaddr* source) {
  return ntohs(source->sa_family == AF_INET ? reinterpret_cast<const sockaddr_in*>(source)->sin_port
                                            : reinterpret_cast<const sockaddr_in6*>(source)->sin6_port);
}

// The same question, to be answered the same way.
struct Question {
  const dns::Query* query;

  uint32_t kind() const {
    constexpr uint16_t kFlags = dns::kFlagRd | dns::kFlagCd;
    return uint32_t{query->qtype} << 16 | (query->flags & kFlags) | (query->dnssec_ok ? 1u : 0u);
  }
  bool operator==(const Question& other) const {
    return kind() == other.kind() && query->qclass == other.query->qclass &&
           std::equal(query->name().begin(), query->name().end(), other.query->name().begin(),
                      other.query->name().end());
  }
};

struct QuestionHash {
  size_t operator()(const Question& question) const {
    return question.query->hash ^ (question.kind() * 0x9e3779b97f4a7c15u);
  }
};

constexpr size_t kUsualRest = 64;  // of a response, beside its records: header, question and OPT

ForwardResult overload(Rcode rcode, std::string reason) {
  return {.response = nullptr,
          .rcode = rcode,
          .ede = EdeCode::kNoReachableAuthority,
          .reason = std::move(reason),
          .overloaded = true};
}

}  // namespace

ClientId ClientId::of(const sockaddr* source) {
  if (source == nullptr) return {};
  const auto any = IpAddress::fromSockaddr(source);
  if (!any) return {};
  const IpAddress ip = any->unmapped();
  uint32_t v4 = 0;
  std::memcpy(&v4, ip.data(), sizeof(v4));
  if (ip.isLoopback()) {
    return {.address = ip.isV4() ? v4 : ~uint64_t{0}, .port = portOf(source), .kind = Kind::kLoopback};
  }
  if (ip.isV4()) return {.address = v4, .port = 0, .kind = Kind::kIpv4};
  if (ip.isLinkLocal()) return {.address = load64(ip.data() + 8), .port = 0, .kind = Kind::kLinkLocal};
  return {.address = load64(ip.data()), .port = 0, .kind = Kind::kIpv6};
}

QueryOrigin QueryOrigin::of(const dns::Query& query, const resolve::Request& request) {
  return {.client = ClientId::of(request.source),
          .port = request.source != nullptr ? portOf(request.source) : uint16_t{0},
          .id = query.message != nullptr ? dns::load16(query.message) : uint16_t{0},
          .transport = request.transport,
          .query_size = std::max(query.size, query.question_end),
          .response_limit = request.response_limit};
}

struct Forwarder::Impl : ForwardExchange::Owner, UpstreamBudget::Tenant {
  struct Flight : WaitingClients::Question {
    Flight(Impl& impl, const dns::Query& query, bool stream_first)
        : exchange(std::in_place, impl.context, impl, query, impl.set.servers(), impl.nextOrder(), stream_first) {}
    std::optional<ForwardExchange> exchange;    // until it has a result
    std::optional<ZoneLimiter::Ticket> ticket;  // as long
    ForwardResult result;
  };
  using FlightPtr = std::shared_ptr<Flight>;

  Impl(net::EventLoop& loop, Options options, Logger log)
      : context(loop, std::move(options), std::move(log)),
        set(context),
        choice(context),
        clients(context.options.max_waiting / 4),
        pace(loop, [this] { deliverWaiting(); }) {
    context.room.add(*this);
  }
  ~Impl() override { context.room.remove(*this); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Wait resolve(const dns::Query& query, const QueryOrigin& origin, Callback done);
  std::optional<ForwardResult> refuse(const dns::Query& query, const QueryOrigin& origin);
  bool mayAskZone(const dns::Query& query, const QueryOrigin& origin, std::optional<ZoneLimiter::Ticket>& ticket);
  bool hasRoomToWait(const QueryOrigin& origin);
  bool hasRoomToAsk(const QueryOrigin& origin);
  bool clear(const WaitingClients::Room& room);
  UpstreamChoice::Order nextOrder();
  ForwardResult withNext(ForwardResult result) const;
  void onExchangeDone(ForwardExchange& exchange, const ForwardResult& result) override;
  bool makeRoom(ForwardExchange& exchange) override;
  size_t datagrams() const override { return context.datagrams; }
  bool giveWay() override { return clear(clients.makeRoomToAsk(QueryOrigin{}, nullptr)); }
  void deliver(const FlightPtr& flight);
  size_t deliverOne(Flight& flight);
  void deliverWaiting();
  void dismissEvicted();
  size_t waiting() const { return clients.size() + clients.evicted(); }
  FlightPtr findFlight(const dns::Query& query) const {
    const auto known = flights.find(Question{&query});
    return known != flights.end() ? known->second : nullptr;
  }

  ForwardContext context;
  UpstreamSet set;
  UpstreamChoice choice;
  WaitingClients clients;
  BlockPool flight_pool;
  // The key points into its exchange.
  std::unordered_map<Question, FlightPtr, QuestionHash> flights;
  // For which some still wait, by a number that grows with every byte that leaves for it, from where the others are.
  // The least is next: a small answer for few does not stand behind a large one for many.
  std::multimap<uint64_t, FlightPtr> answered;
  uint64_t served = 0;      // the least that was
  bool is_put_off = false;  // the answer that is being delivered: noteDeferred()
  LateAnswers pace;
  bool dismissing = false;
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);  // for what is posted
};

Forwarder::Forwarder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Forwarder::~Forwarder() = default;

Result<std::unique_ptr<Forwarder>> Forwarder::make(net::EventLoop& loop, Options options, Logger log) {
  if (options.to.empty()) return fail("no server to forward to");
  if (!options.room) {
    auto room = UpstreamBudget::make(loop, net::DescriptorBudget::unlimited()->account(0));
    if (!room) return tl::unexpected(room.error());
    options.room = std::move(*room);
  }
  options.named.insert(options.named.end(), options.from.begin(), options.from.end());
  auto impl = std::make_unique<Impl>(loop, std::move(options), std::move(log));
  impl->context.tls = impl->context.options.files->tls;
  impl->context.https = impl->context.options.files->https;
  if (auto opened = impl->context.openSource(); !opened) return tl::unexpected(opened.error());
  if (auto started = impl->set.start(); !started) return tl::unexpected(started.error());
  return std::unique_ptr<Forwarder>(new Forwarder(std::move(impl)));
}

bool Forwarder::serves(const dns::Query& query) const {
  const Options& options = impl_->context.options;
  const auto within = [&query](const dns::Name& zone) { return dns::isNameWithin(query.name(), zone); };
  const auto is_itself = [&query](const dns::Name& zone) {
    return zone.size() == query.qname_size && dns::isNameWithin(query.name(), zone);
  };
  if (std::none_of(options.from.begin(), options.from.end(), within)) return false;
  if (std::none_of(options.from.begin(), options.from.end(), is_itself) &&
      std::any_of(options.except.begin(), options.except.end(), within)) {
    return false;
  }
  return mayBeForwarded(query, options.named, impl_->set.isPrivate());
}

Forwarder::Wait Forwarder::resolve(const dns::Query& query, const QueryOrigin& origin, Callback done) {
  return impl_->resolve(query, origin, std::move(done));
}

size_t Forwarder::waiting() const { return impl_->waiting(); }

std::chrono::nanoseconds Forwarder::silence(BootClock::time_point now) const {
  auto least = std::chrono::nanoseconds::max();
  for (const auto& server : *impl_->set.servers()) {
    if (!server->isDown()) least = std::min(least, server->silence(now));
  }
  return least;
}

void Forwarder::noteDeferred() { impl_->is_put_off = true; }

std::vector<UpstreamAddress> Forwarder::upstreams() const {
  std::vector<UpstreamAddress> addresses;
  for (const auto& server : *impl_->set.servers()) addresses.push_back(server->address());
  return addresses;
}

std::shared_ptr<const ServerReports> Forwarder::reports() const { return impl_->set.reports(); }

std::vector<UpstreamAddress> Forwarder::ourselves() const { return impl_->set.ourselves(); }

Forwarder::Wait Forwarder::Impl::resolve(const dns::Query& query, const QueryOrigin& origin, Callback done) {
  using Admission = WaitingClients::Admission;
  context.counters.queries.add();
  FlightPtr flight = findFlight(query);
  const Admission verdict = flight ? clients.judge(*flight, origin) : Admission::kWait;
  if (verdict == Admission::kAbsorb) {
    context.counters.absorbed.add();
    return Wait::kForNothing;
  }
  std::optional<ZoneLimiter::Ticket> ticket;
  auto refused = verdict == Admission::kTooMany
                     ? overload(Rcode::kServFail, "too many wait for the answer to one question")
                 : !flight && !mayAskZone(query, origin, ticket)
                     ? overload(Rcode::kServFail, "too many questions about its zone are in flight")
                     : refuse(query, origin);
  if (refused) {
    (refused->rcode == Rcode::kRefused ? context.counters.concurrent_rejects : context.counters.failed).add();
    done(withNext(std::move(*refused)));
    return Wait::kForAll;
  }
  const bool for_little = verdict == Admission::kWaitForLittle;
  const size_t limit = for_little ? truncationLimit(origin) : origin.response_limit;
  const Wait wait = for_little ? Wait::kForLittle : Wait::kForAll;
  flight = findFlight(query);  // it may have been given up to make room
  if (flight) {
    context.counters.merged.add();
    clients.add(*flight, origin, limit, std::move(done));
    return wait;
  }
  const bool stream_first = origin.transport == resolve::Transport::kTcp && !context.options.prefer_udp;
  flight = std::allocate_shared<Flight>(PoolAllocator<Flight>(flight_pool), *this, query, stream_first);
  clients.add(*flight, origin, limit, std::move(done));
  clients.begin(*flight);
  flight->ticket = std::move(ticket);
  ForwardExchange& exchange = *flight->exchange;
  flights.emplace(Question{&exchange.query()}, std::move(flight));
  exchange.start();
  return wait;
}

// Why `origin` cannot wait for the answer; others may have been made to give way to it.
std::optional<ForwardResult> Forwarder::Impl::refuse(const dns::Query& query, const QueryOrigin& origin) {
  const Options& options = context.options;
  if (options.max_concurrent > 0 && waiting() >= options.max_concurrent && !origin.urgent) {
    return overload(Rcode::kRefused, fmt::format("concurrent queries exceeded maximum {}", options.max_concurrent));
  }
  if (!hasRoomToWait(origin)) return overload(Rcode::kServFail, "too many queries wait for upstreams");
  if (!findFlight(query) && !hasRoomToAsk(origin)) {
    return overload(Rcode::kServFail, "too many questions are in flight");
  }
  return std::nullopt;
}

// Questions of this process itself are asked whatever others ask.
bool Forwarder::Impl::mayAskZone(const dns::Query& query, const QueryOrigin& origin,
                                 std::optional<ZoneLimiter::Ticket>& ticket) {
  if (!context.options.zones || origin.urgent) return true;
  ticket = context.options.zones->begin(query);
  return ticket.has_value();
}

bool Forwarder::Impl::hasRoomToWait(const QueryOrigin& origin) {
  return clients.size() < context.options.max_waiting || clear(clients.makeRoomToWait(origin));
}

bool Forwarder::Impl::hasRoomToAsk(const QueryOrigin& origin) {
  return flights.size() < context.options.max_in_flight || clear(clients.makeRoomToAsk(origin, nullptr));
}

// A socket was not to be had: one of those that are open on this loop may be let go.
bool Forwarder::Impl::makeRoom(ForwardExchange& exchange) {
  if (context.room.takeFromOthers(*this)) return true;
  const FlightPtr flight = findFlight(exchange.query());
  return flight && clear(clients.makeRoomToAsk(WaitingClients::originOf(*flight), flight.get()));
}

// Evicted queries are answered when the loop is back: this may be in the middle of another client's query.
bool Forwarder::Impl::clear(const WaitingClients::Room& room) {
  if (room.abandoned != nullptr) {
    clients.settle(*room.abandoned);
    flights.erase(Question{&static_cast<Flight*>(room.abandoned)->exchange->query()});
  }
  if (!dismissing && clients.hasEvicted()) {
    dismissing = true;
    context.loop.post([this, guard = std::weak_ptr(alive)] {
      if (guard.lock()) dismissEvicted();
    });
  }
  return room.made;
}

void Forwarder::Impl::dismissEvicted() {
  dismissing = false;
  const ForwardResult result = withNext(overload(Rcode::kServFail, "gave way to a client with fewer questions"));
  for (size_t left = clients.evicted(); left > 0 && clients.hasEvicted(); --left) {  // not what comes meanwhile
    context.counters.evicted.add();
    context.counters.failed.add();
    clients.takeEvicted()(result);
  }
}

UpstreamChoice::Order Forwarder::Impl::nextOrder() {
  if (set.servers()->size() <= 1) return {};
  return choice.next(set.servers(), BootClock::now());
}

ForwardResult Forwarder::Impl::withNext(ForwardResult result) const {
  const auto& next = context.options.next;
  const bool is_nodata = result.response && result.rcode == Rcode::kNoError && result.response->packed->answers == 0;
  result.next =
      std::find(next.begin(), next.end(), result.rcode) != next.end() || (is_nodata && context.options.next_on_nodata);
  return result;
}

void Forwarder::Impl::onExchangeDone(ForwardExchange& exchange, const ForwardResult& result) {
  // Callbacks may ask again, the same question too.
  const auto node = flights.extract(Question{&exchange.query()});
  const FlightPtr flight = node.mapped();
  flight->result = withNext(result);
  if (context.options.zones && result.response) context.options.zones->learn(exchange.query(), *result.response);
  flight->exchange.reset();
  flight->ticket.reset();
  clients.settle(*flight);
  deliver(flight);
}

// The first waiting query gets the answer now, and so do others as long as they are few.
void Forwarder::Impl::deliver(const FlightPtr& flight) {
  deliverOne(*flight);
  if (flight->waiting() == 0) return;
  pace.begin();
  while (answered.empty() && flight->waiting() > 0 && pace.mayGo()) pace.spend(deliverOne(*flight));
  if (flight->waiting() == 0) return;
  answered.emplace(served, flight);
  pace.wait();
}

void Forwarder::Impl::deliverWaiting() {
  pace.begin();
  while (!answered.empty() && pace.mayGo()) {
    auto next = answered.extract(answered.begin());
    Flight& flight = *next.mapped();
    served = next.key();
    if (flight.waiting() > 0) next.key() += pace.spend(deliverOne(flight));
    if (flight.waiting() > 0) answered.insert(std::move(next));
  }
  if (!answered.empty()) pace.wait();
}

// Returns about how many bytes leave. REQUIRES: `flight` stays meanwhile.
size_t Forwarder::Impl::deliverOne(Flight& flight) {
  const auto [done, limit] = clients.take(flight);
  const ForwardResult& result = flight.result;
  if (!result.response) context.counters.failed.add();
  const size_t size = result.response ? kUsualRest + result.response->packed->body().size() : kUsualRest;
  is_put_off = false;
  done(result);
  return is_put_off ? 0 : std::min(limit, size);
}

}  // namespace idetcd::resolver
