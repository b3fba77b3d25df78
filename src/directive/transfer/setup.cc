// The directive `transfer`: who may have copies of the block's zones, and is told of their changes.
#include "config/option_table.h"
#include "directive/transfer/notifier.h"
#include "directive/transfer/peer_address.h"
#include "directive/transfer/published_zones_source.h"
#include "directive/tsig/signature_source.h"

namespace idetcd::directive {

namespace {

// `to ADDRESS...`
Result<void> readTo(config::DirectiveCursor& cursor, TransferSettings& settings) {
  const auto words = cursor.args(1);
  if (!words) return tl::unexpected(words.error());
  for (const std::string& word : *words) {
    if (word == "*") {
      settings.to_all = true;
    } else if (const auto address = parsePeerAddress(word)) {
      settings.notified.push_back(*address);
      settings.clients.push_back(
          {.address = address->ip.unmapped(), .prefix_length = static_cast<uint8_t>(8 * address->ip.unmapped().size())});
    } else if (const auto network = IpNetwork::parse(word)) {
      settings.clients.push_back(*network);
    } else {
      return cursor.error(fmt::format("'{}' is no IP address, with or without a port, no network and not *", word));
    }
  }
  return {};
}

const config::Options<TransferSettings>& transferOptions() {
  using namespace config;
  static const Options<TransferSettings> kOptions{
      zonesIfAny(&TransferSettings::zones),
      {{"to", "to ADDRESS...|NETWORK...|*", readTo}, {"tsig-key", "tsig-key NAME", text(&TransferSettings::key)}}};
  return kOptions;
}

class TransferDirective final : public resolve::Configured<std::vector<TransferSettings>> {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override {
    TransferSettings settings{.zones = config::zonesOf(block.keys)};
    if (auto read = transferOptions().read(cursor, settings); !read) return read;
    if (!settings.to_all && settings.clients.empty()) return cursor.error("transfer needs `to`");
    settings_.push_back(std::move(settings));
    return {};
  }

  Result<void> prepare(resolve::Process& process, const resolve::Block& block) override {
    process_ = &process;
    shared_ = std::make_shared<const std::vector<TransferSettings>>(settings_);
    if (const auto* source = block.find<SignatureSource>()) signatures_ = source->signatures();
    for (const TransferSettings& settings : settings_) {
      if (!settings.key.empty() && keyNamed(settings.key) == nullptr)
        return fail(fmt::format("plugin/transfer: the block's `tsig` has no key '{}'", settings.key));
    }
    return {};
  }

  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override {
    if (zones_.empty()) {
      for (const auto& [type, directive] : context.block.directives) {
        const auto* source = dynamic_cast<const PublishedZonesSource*>(directive.get());
        if (source != nullptr) zones_.push_back(source->publishedZones());
      }
    }
    chain.addForTransfers(std::make_unique<TransferHandler>(
        TransferHandler::Context{.settings = shared_,
                                 .zones = zones_,
                                 .transfers = process_->state<Transfers>(),
                                 .log = log(),
                                 .metrics = context.process.metrics.scope()}));
    return {};
  }

  void start() override {
    const auto notifies = [](const TransferSettings& settings) { return !settings.notified.empty(); };
    if (std::ranges::none_of(settings_, notifies)) return;
    notifier_ = std::make_unique<Notifier>(
        process_->loop, Notifier::Context{.settings = shared_,
                                          .zones = zones_,
                                          .key_of = [this](const std::string& name) { return keyNamed(name); },
                                          .log = log()});
  }
  void stop() override { notifier_.reset(); }

 private:
  Logger log() const { return process_->log.named("plugin/transfer"); }
  const tsig::Key* keyNamed(const std::string& text) const {
    const auto name = dns::Name::parse(text);
    return name && signatures_ ? signatures_->keys.find(*name) : nullptr;
  }

  resolve::Process* process_ = nullptr;
  std::shared_ptr<const std::vector<TransferSettings>> shared_;
  std::shared_ptr<const resolve::SignatureRules> signatures_;
  PublishedZones zones_;
  std::unique_ptr<Notifier> notifier_;
};

}  // namespace

extern const resolve::DirectiveType kTransferDirective{.name = "transfer",
                                                       .syntax = "transfer [ZONES...] { to ADDRESS... }",
                                                       .make = resolve::makeDirective<TransferDirective>};

}  // namespace idetcd::directive
