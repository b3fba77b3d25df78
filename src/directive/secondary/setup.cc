// The directive `secondary`: zones that other servers have.
#include "config/option_table.h"
#include "directive/bind/settings.h"
#include "directive/file/zone_handler.h"
#include "directive/secondary/secondary_zones.h"
#include "directive/transfer/peer_address.h"
#include "directive/transfer/published_zones_source.h"
#include "directive/tsig/signature_source.h"
#include "dns/response.h"

namespace idetcd::directive {

namespace {

// `transfer from ADDRESS...`
Result<void> readTransfer(config::DirectiveCursor& cursor, SecondarySettings& settings) {
  const auto words = cursor.args(2);
  if (!words) return tl::unexpected(words.error());
  if (words->front() != "from") return cursor.error("a transfer is `from` primaries; who may have the zone is in `transfer`");
  for (const std::string& word : std::span(*words).subspan(1)) {
    const auto address = parsePeerAddress(word);
    if (!address) return cursor.error(fmt::format("'{}' is no IP address, with or without a port", word));
    settings.primaries.push_back(*address);
  }
  return {};
}

const config::Options<SecondarySettings>& secondaryOptions() {
  using namespace config;
  static const Options<SecondarySettings> kOptions{
      zonesIfAny(&SecondarySettings::zones),
      {{"transfer", "transfer from ADDRESS...", readTransfer},
       {"tsig-key", "tsig-key NAME", text(&SecondarySettings::key)},
       {"fallthrough", "fallthrough [ZONES...]", zonesOrAll(&SecondarySettings::fallthrough)}}};
  return kOptions;
}

// Blocks may differ in their addresses alone.
std::string nameOf(const resolve::Block& block) {
  std::string name;
  for (const config::ServerKey& key : block.keys) name += key.text + " ";
  if (const auto* bind = block.settings<BindSettings>()) name += fmt::format("{}", fmt::join(bind->listen, " "));
  return name;
}

// What takes NOTIFY on all loops, and hands it on to the first one. Any thread.
class NotifyInbox {
 public:
  NotifyInbox(net::EventLoop& loop, std::vector<SecondarySettings> settings)
      : loop_(loop), settings_(std::move(settings)) {}

  enum class Verdict : uint8_t { kTaken, kNoZone, kStranger };
  Verdict take(const dns::Query& query, const resolve::Request& request, const std::shared_ptr<NotifyInbox>& self) {
    const std::span<const uint8_t> name = query.name();
    const auto client = IpAddress::fromSockaddr(request.source);
    for (const SecondarySettings& settings : settings_) {
      const auto zone = std::ranges::find_if(
          settings.zones, [&](const dns::Name& one) { return std::ranges::equal(one.wire(), name); });
      if (zone == settings.zones.end()) continue;
      const bool is_primary = client && std::ranges::any_of(settings.primaries, [&](const SocketAddress& primary) {
        return primary.ip.unmapped() == client->unmapped();
      });
      const bool is_signed = settings.key.empty() || request.signed_by != nullptr;
      if (!is_primary || !is_signed) return Verdict::kStranger;
      loop_.post([weak = std::weak_ptr(self), zone = *zone, from = *client] {
        const auto inbox = weak.lock();
        if (inbox && inbox->zones_) inbox->zones_->onNotify(zone, from);
      });
      return Verdict::kTaken;
    }
    return Verdict::kNoZone;
  }

  // The first loop's thread.
  void begin(SecondaryZones::Context context) { zones_.emplace(std::move(context), settings_); }
  void end() { zones_.reset(); }

 private:
  net::EventLoop& loop_;
  const std::vector<SecondarySettings> settings_;
  std::optional<SecondaryZones> zones_;
};

class NotifyHandler final : public resolve::Handler {
 public:
  explicit NotifyHandler(std::shared_ptr<NotifyInbox> inbox) : inbox_(std::move(inbox)) {}
  resolve::QueryOutcome answer(const dns::Query& query, const resolve::Request& request, uint16_t flags) override {
    using Verdict = NotifyInbox::Verdict;
    const Verdict verdict = inbox_->take(query, request, inbox_);
    const dns::Rcode rcode = verdict == Verdict::kTaken    ? dns::Rcode::kNoError
                             : verdict == Verdict::kNoZone ? dns::Rcode::kNotAuth
                                                           : dns::Rcode::kRefused;
    const auto all_flags = static_cast<uint16_t>(flags | (verdict == Verdict::kTaken ? dns::kFlagAa : 0));
    return resolve::QueryOutcome::answer(
        dns::ResponseBuilder(query, request.response_limit).finish(rcode, all_flags));
  }

 private:
  const std::shared_ptr<NotifyInbox> inbox_;
};

class SecondaryDirective final : public resolve::Configured<std::vector<SecondarySettings>>,
                                 public PublishedZonesSource {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override {
    SecondarySettings settings{.zones = config::zonesOf(block.keys)};
    if (auto read = secondaryOptions().read(cursor, settings); !read) return read;
    if (settings.primaries.empty()) return cursor.error("secondary needs `transfer from`");
    for (const dns::Name& zone : settings.zones) {
      const bool known = std::ranges::any_of(
          settings_, [&](const auto& other) { return std::ranges::find(other.zones, zone) != other.zones.end(); });
      if (known) return cursor.error(fmt::format("zone '{}' has primaries already", zone.toString()));
    }
    settings_.push_back(std::move(settings));
    return {};
  }

  Result<void> prepare(resolve::Process& process, const resolve::Block& block) override {
    process_ = &process;
    keeps_changes_ = areTransferred(block);
    if (const auto* source = block.find<SignatureSource>()) signatures_ = source->signatures();
    for (SecondarySettings& settings : settings_) settings.block = nameOf(block);
    set_ = std::make_shared<ZoneSet>(process.hash_seed);
    inbox_ = std::make_shared<NotifyInbox>(process.loop, settings_);
    for (const SecondarySettings& settings : settings_) {
      if (!settings.key.empty() && keyNamed(settings.key) == nullptr)
        return fail(fmt::format("plugin/secondary: the block's `tsig` has no key '{}'", settings.key));
      SecondaryZones::putKept(settings, process.state<KeptCopies>(), *set_);
    }
    return {};
  }

  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override {
    ZoneHandler::addTo(chain, context, set_, "secondary");
    chain.addForNotifies(std::make_unique<NotifyHandler>(inbox_));
    return {};
  }

  void start() override {
    inbox_->begin({.loop = process_->loop,
                   .set = set_,
                   .kept = process_->state<KeptCopies>(),
                   .places = process_->state<SecondaryPlaces>(),
                   .executor = process_->executor,
                   .log = process_->log.named("plugin/secondary"),
                   .metrics = process_->metrics.scope(),
                   .key_of = [this](const std::string& name) { return keyNamed(name); },
                   .keeps_changes = keeps_changes_});
  }
  void stop() override { inbox_->end(); }

  std::shared_ptr<const zones::PublishedZones> publishedZones() const override { return set_; }

 private:
  const tsig::Key* keyNamed(const std::string& text) const {
    const auto name = dns::Name::parse(text);
    return name && signatures_ ? signatures_->keys.find(*name) : nullptr;
  }

  resolve::Process* process_ = nullptr;
  bool keeps_changes_ = false;
  std::shared_ptr<const resolve::SignatureRules> signatures_;
  std::shared_ptr<ZoneSet> set_;
  std::shared_ptr<NotifyInbox> inbox_;
};

}  // namespace

extern const resolve::DirectiveType kSecondaryDirective{.name = "secondary",
                                                        .syntax = "secondary [ZONES...] { transfer from ADDRESS... }",
                                                        .make = resolve::makeDirective<SecondaryDirective>};

}  // namespace idetcd::directive
