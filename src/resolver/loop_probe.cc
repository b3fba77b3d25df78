#include "resolver/loop_probe.h"

#include "base/random.h"

namespace idetcd::resolver {

namespace {

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

LoopProbe::LoopProbe(net::EventLoop& loop, Options options, Ask ask, OnLoop on_loop)
    : loop_(loop), options_(std::move(options)), ask_(std::move(ask)), on_loop_(std::move(on_loop)) {
  std::generate(names_.begin(), names_.end(), [this] { return unguessableName(options_.zone); });
}

std::string LoopProbe::describe(const SocketAddress& local, const dns::Name& zone) {
  return lineOf(local, SocketAddress{.ip = {}, .port = local.port}, zone);
}

void LoopProbe::start() {
  if (retry_) return;
  retry_ = std::make_unique<net::Timer>(loop_, [this] { askNext(); });
  end_ = std::make_unique<net::Timer>(loop_, [this] { finish(); });
  probing_.store(true, std::memory_order_relaxed);
  deadline_ = BootClock::now() + options_.total;
  end_->start(options_.total);
  askNext();
}

void LoopProbe::askNext() {
  const dns::OwnQuery hinfo(names_[std::min(returns_handled_, names_.size() - 1)], dns::code(dns::RrType::kHinfo),
                            dns::code(dns::RrClass::kIn), dns::kFlagRd, 0);
  ask_(hinfo.query(), [weak = weak_from_this()](bool answered) {
    if (const auto self = weak.lock()) self->onAnswer(answered);
  });
}

void LoopProbe::onAnswer(bool answered) {
  if (!end_) return;
  if (!answered) return retry_->start(options_.retry);
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - BootClock::now());
  end_->start(std::clamp(left, std::chrono::milliseconds(0), options_.grace));
}

void LoopProbe::see(const dns::Query& query, const resolve::Request& request) {
  if (query.qtype != dns::code(dns::RrType::kHinfo) || !isProbing()) return;
  const auto is_asked = [&query](const dns::Name& name) {
    return name.size() == query.qname_size && std::equal(name.data(), name.data() + name.size(), query.qname);
  };
  const auto name = std::find_if(names_.begin(), names_.end(), is_asked);
  // Relaxed: no more than a count; what depends on it is handed over by post().
  if (name == names_.end() || returns_.fetch_add(1, std::memory_order_relaxed) >= kMaxReturns) return;
  const auto source = SocketAddress::fromSockaddr(request.source).value_or(SocketAddress{});
  const SocketAddress local = request.local != nullptr ? *request.local : SocketAddress{};
  std::string line = fmt::format("{}. Query: \"HINFO {}\"", lineOf(source, local, options_.zone), name->toString());
  loop_.post([weak = weak_from_this(), text = std::move(line)] {
    if (const auto self = weak.lock()) self->onReturn(text);
  });
}

void LoopProbe::onReturn(const std::string& line) {
  if (!end_) return;
  ++returns_handled_;
  if (returns_handled_ < kMaxReturns) return askNext();
  finish();
  on_loop_(line);
}

void LoopProbe::finish() {
  probing_.store(false, std::memory_order_relaxed);
  if (retry_) retry_->stop();
  end_.reset();
}

}  // namespace idetcd::resolver
