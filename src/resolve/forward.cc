#include "resolve/forward.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "base/block_pool.h"
#include "resolve/forward_exchange.h"
#include "resolve/upstream_set.h"

namespace idetcd::resolve {

using dns::EdeCode;
using dns::Rcode;

namespace {

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

ForwardResult overload(Rcode rcode, std::string reason) {
  return {.response = nullptr,
          .rcode = rcode,
          .ede = EdeCode::kNoReachableAuthority,
          .reason = std::move(reason),
          .overloaded = true};
}

}  // namespace

struct Forwarder::Impl : ForwardExchange::Owner {
  struct Flight {
    Flight(Impl& impl, const dns::Query& query, bool stream_first)
        : exchange(impl.context, impl, query, impl.set.servers(), impl.nextOrder(), stream_first) {}
    ForwardExchange exchange;
    std::vector<Callback> waiters;
  };

  Impl(net::EventLoop& loop, Options options, Logger log)
      : context(loop, std::move(options), std::move(log)), set(context) {}

  void resolve(const dns::Query& query, Transport transport, Callback done);
  std::optional<ForwardResult> refuse(bool is_new) const;
  ForwardExchange::Order nextOrder();
  ForwardResult withNext(ForwardResult result) const;
  void onExchangeDone(ForwardExchange& exchange, const ForwardResult& result) override;

  ForwardContext context;
  UpstreamSet set;
  BlockPool flight_pool;
  // The key points into its exchange.
  std::unordered_map<Question, std::shared_ptr<Flight>, QuestionHash> flights;
  size_t waiting = 0;
  uint32_t turn = 0;  // round_robin
};

Forwarder::Forwarder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Forwarder::~Forwarder() = default;

Result<std::unique_ptr<Forwarder>> Forwarder::make(net::EventLoop& loop, Options options, Logger log) {
  if (options.to.empty()) return fail("no server to forward to");
  const bool needs_tls = std::any_of(options.to.begin(), options.to.end(), [](const UpstreamTarget& target) {
    return target.server && target.server->protocol == UpstreamProtocol::kTls;
  });
  std::shared_ptr<net::TlsContext> tls;
  if (needs_tls || !options.tls.certificate_file.empty() || !options.tls.ca_file.empty()) {
    auto made = net::TlsContext::make({.certificate_file = options.tls.certificate_file,
                                       .key_file = options.tls.key_file,
                                       .ca_file = options.tls.ca_file,
                                       .application_protocol = {}});
    if (!made) return tl::unexpected(made.error());
    tls = std::move(*made);
  }
  auto impl = std::make_unique<Impl>(loop, std::move(options), std::move(log));
  impl->context.tls = std::move(tls);
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
  return std::any_of(options.from.begin(), options.from.end(), is_itself) ||
         std::none_of(options.except.begin(), options.except.end(), within);
}

void Forwarder::resolve(const dns::Query& query, Transport transport, Callback done) {
  impl_->resolve(query, transport, std::move(done));
}

const Forwarder::Counters& Forwarder::counters() const { return impl_->context.counters; }

size_t Forwarder::waiting() const { return impl_->waiting; }

std::vector<UpstreamAddress> Forwarder::upstreams() const {
  std::vector<UpstreamAddress> addresses;
  for (const auto& server : *impl_->set.servers()) addresses.push_back(server->address());
  return addresses;
}

std::vector<UpstreamAddress> Forwarder::ourselves() const { return impl_->set.ourselves(); }

void Forwarder::Impl::resolve(const dns::Query& query, Transport transport, Callback done) {
  ++context.counters.queries;
  const auto known = flights.find(Question{&query});
  if (auto refused = refuse(known == flights.end())) {
    if (refused->rcode == Rcode::kRefused) {
      ++context.counters.concurrent_rejects;
    } else {
      ++context.counters.failed;
    }
    return done(withNext(std::move(*refused)));
  }
  ++waiting;
  if (known != flights.end()) {
    ++context.counters.merged;
    known->second->waiters.push_back(std::move(done));
    return;
  }
  const bool stream_first = transport == Transport::kTcp && !context.options.prefer_udp;
  auto flight = std::allocate_shared<Flight>(PoolAllocator<Flight>(flight_pool), *this, query, stream_first);
  flight->waiters.push_back(std::move(done));
  ForwardExchange& exchange = flight->exchange;
  flights.emplace(Question{&exchange.query()}, std::move(flight));
  exchange.start();
}

std::optional<ForwardResult> Forwarder::Impl::refuse(bool is_new) const {
  const Options& options = context.options;
  if (options.max_concurrent > 0 && waiting >= options.max_concurrent) {
    return overload(Rcode::kRefused, fmt::format("concurrent queries exceeded maximum {}", options.max_concurrent));
  }
  if (waiting >= options.max_waiting) {
    return overload(Rcode::kServFail, "too many queries wait for upstreams");
  }
  if (is_new && flights.size() >= options.max_in_flight) {
    return overload(Rcode::kServFail, "too many questions are in flight");
  }
  return std::nullopt;
}

ForwardExchange::Order Forwarder::Impl::nextOrder() {
  ForwardExchange::Order order{};
  const size_t count = set.servers()->size();
  const size_t first = context.options.policy == Policy::kRoundRobin && count > 0 ? turn++ % count : 0;
  for (size_t i = 0; i < count; ++i) order[i] = static_cast<uint8_t>((first + i) % count);
  if (context.options.policy == Policy::kRandom) {
    for (size_t i = count; i > 1; --i) std::swap(order[i - 1], order[context.random.below(static_cast<uint32_t>(i))]);
  }
  return order;
}

ForwardResult Forwarder::Impl::withNext(ForwardResult result) const {
  const auto& next = context.options.next;
  result.next = std::find(next.begin(), next.end(), result.rcode) != next.end();
  return result;
}

void Forwarder::Impl::onExchangeDone(ForwardExchange& exchange, const ForwardResult& result) {
  // Callbacks may ask again, the same question too.
  const auto node = flights.extract(Question{&exchange.query()});
  const std::vector<Callback> waiters = std::move(node.mapped()->waiters);
  waiting -= waiters.size();
  if (!result.response) context.counters.failed += waiters.size();
  const ForwardResult complete = withNext(result);
  for (const Callback& done : waiters) done(complete);
}

}  // namespace idetcd::resolve
