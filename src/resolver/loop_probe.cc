#include "resolver/loop_probe.h"

#include "base/clock.h"
#include "base/random.h"
#include "dns/own_query.h"

namespace idetcd::resolver {

namespace {

// Our own asking is the first time that the probe is seen; "more than twice" is this many times from outside.
constexpr size_t kMaxReturns = 2;
// <random>.<random>.<zone>, the zone's own labels left out where that is too long. A random label is 128 bits in
// hexadecimal.
dns::Name unguessableName(const dns::Name& zone) {
  KernelRandom random;
  std::string text;
  for (int label = 0; label < 2; ++label) text += fmt::format("{:016x}{:016x}.", random.next(), random.next());
  const std::string below = zone.isRoot() ? "" : zone.toString();
  const auto name = dns::Name::parse(text + below);
  return name ? *name : *dns::Name::parse(text);
}

// ":53" of a listener on every address.
std::string localText(const SocketAddress& address) {
  return address.ip.isUnspecified() ? fmt::format(":{}", address.port) : address.toString();
}

std::string lineOf(const SocketAddress& source, const SocketAddress& local, const dns::Name& zone) {
  return fmt::format("Loop ({} -> {}) detected for zone \"{}\", see https://coredns.io/plugins/loop#troubleshooting",
                     source.toString(), localText(local), zone.toString());
}

}  // namespace

struct LoopProbe::Impl : std::enable_shared_from_this<Impl> {
  Impl(net::EventLoop& event_loop, Options opts, Ask asks, OnLoop on_loop_found)
      : loop(event_loop), options(std::move(opts)), ask(std::move(asks)), on_loop(std::move(on_loop_found)) {
    std::generate(names.begin(), names.end(), [this] { return unguessableName(options.zone); });
  }

  void start() {
    if (retry) return;
    retry = std::make_unique<net::Timer>(loop, [this] { askNext(); });
    end = std::make_unique<net::Timer>(loop, [this] { finish(); });
    probing.store(true, std::memory_order_relaxed);
    deadline = BootClock::now() + options.total;
    end->start(options.total);
    askNext();
  }

  void askNext() {
    const dns::OwnQuery hinfo(names[std::min(returns_handled, names.size() - 1)], dns::code(dns::RrType::kHinfo),
                              dns::code(dns::RrClass::kIn), dns::kFlagRd, 0);
    ask(hinfo.query(), [weak = weak_from_this()](bool answered) {
      if (const auto self = weak.lock()) self->onAnswer(answered);
    });
  }

  void onAnswer(bool answered) {
    if (!end) return;
    if (!answered) return retry->start(options.retry);
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - BootClock::now());
    end->start(std::clamp(left, std::chrono::milliseconds(0), options.grace));
  }

  // Any thread.
  void see(const dns::Query& query, const resolve::Request& request) {
    const auto is_asked = [&query](const dns::Name& name) {
      return name.size() == query.qname_size && std::equal(name.data(), name.data() + name.size(), query.qname);
    };
    const auto name = std::find_if(names.begin(), names.end(), is_asked);
    // Relaxed: no more than a count; what depends on it is handed over by post().
    if (name == names.end() || returns.fetch_add(1, std::memory_order_relaxed) >= kMaxReturns) return;
    const auto source = SocketAddress::fromSockaddr(request.source).value_or(SocketAddress{});
    const SocketAddress local = request.local != nullptr ? *request.local : SocketAddress{};
    std::string line = fmt::format("{}. Query: \"HINFO {}\"", lineOf(source, local, options.zone), name->toString());
    loop.post([weak = weak_from_this(), text = std::move(line)] {
      if (const auto self = weak.lock()) self->onReturn(text);
    });
  }

  void onReturn(const std::string& line) {
    if (!end) return;
    ++returns_handled;
    if (returns_handled < kMaxReturns) return askNext();
    finish();
    on_loop(line);
  }

  void finish() {
    probing.store(false, std::memory_order_relaxed);
    if (retry) retry->stop();
    end.reset();
  }

  net::EventLoop& loop;
  const Options options;
  const Ask ask;
  const OnLoop on_loop;
  std::array<dns::Name, kMaxReturns> names;
  std::atomic<bool> probing{false};
  std::atomic<size_t> returns{0};
  size_t returns_handled = 0;
  BootClock::time_point deadline{};
  std::unique_ptr<net::Timer> retry;  // none: not started
  std::unique_ptr<net::Timer> end;    // none: not started, or over
};

LoopProbe::LoopProbe(net::EventLoop& loop, Options options, Ask ask, OnLoop on_loop)
    : impl_(std::make_shared<Impl>(loop, std::move(options), std::move(ask), std::move(on_loop))) {}

LoopProbe::~LoopProbe() {
  impl_->finish();
  impl_->retry.reset();
}

std::string LoopProbe::describe(const SocketAddress& local, const dns::Name& zone) {
  return lineOf(local, SocketAddress{.ip = {}, .port = local.port}, zone);
}

void LoopProbe::start() { impl_->start(); }

void LoopProbe::stop() { impl_->finish(); }

void LoopProbe::see(const dns::Query& query, const resolve::Request& request) const {
  if (query.qtype != dns::code(dns::RrType::kHinfo) || !isProbing()) return;
  impl_->see(query, request);
}

// Relaxed: it guards nothing; a look too early or too late misses one count.
bool LoopProbe::isProbing() const { return impl_->probing.load(std::memory_order_relaxed); }

}  // namespace idetcd::resolver
