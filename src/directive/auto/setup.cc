// The directive `auto`: the zones of a folder.
#include "config/option_table.h"
#include "directive/auto/zone_folder.h"
#include "directive/file/zone_handler.h"
#include "directive/transfer/published_zones_source.h"
#include "resolve/directive.h"

namespace idetcd::directive {

namespace {

// `directory DIR [REGEXP ORIGIN_TEMPLATE]`
Result<void> readDirectory(config::DirectiveCursor& cursor, AutoSettings& settings) {
  const auto words = cursor.args(1, 3);
  if (!words) return tl::unexpected(words.error());
  if (words->size() == 2) return cursor.error("a REGEXP needs an ORIGIN_TEMPLATE");
  settings.directory = (*words)[0];
  if (words->size() == 1) return {};
  const re2::RE2 pattern((*words)[1], re2::RE2::Quiet);
  if (!pattern.ok())
    return cursor.error(fmt::format("'{}' is no regular expression: {}", (*words)[1], pattern.error()));
  if (pattern.NumberOfCapturingGroups() == 0)
    return cursor.error(fmt::format("'{}' has no group, such as `(.*)`", (*words)[1]));
  settings.pattern = (*words)[1];
  settings.origin = (*words)[2];
  return {};
}

// Of earlier versions of CoreDNS, with any arguments.
Result<void> skipUpstream(config::DirectiveCursor& cursor, AutoSettings&) {
  cursor.remainingArgs();
  return {};
}

const config::Options<AutoSettings>& autoOptions() {
  using namespace config;
  static const Options<AutoSettings> kOptions{
      zonesIfAny(&AutoSettings::zones),
      {{"directory", "directory DIR [REGEXP ORIGIN_TEMPLATE]", readDirectory},
       {"reload", "reload DURATION, like 1m; 0: never", duration(&AutoSettings::reload)},
       {"upstream", "upstream", skipUpstream}}};
  return kOptions;
}

class AutoDirective final : public resolve::Configured<AutoSettings>, public PublishedZonesSource {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override {
    settings_.zones = config::zonesOf(block.keys);
    if (auto read = autoOptions().read(cursor, settings_); !read) return read;
    if (settings_.directory.empty()) return cursor.error("auto needs a directory");
    return {};
  }

  Result<void> prepare(resolve::Process& process, const resolve::Block& block) override {
    set_ = std::make_shared<ZoneSet>(process.hash_seed);
    folder_ = std::make_unique<ZoneFolder>(
        settings_,
        ZoneLoader::Context{set_, process.executor, process.log.named("plugin/auto"), process.metrics.scope(),
                            &process.state<KeptZones>(), areTransferred(block)});
    folder_->load();
    return {};
  }

  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override {
    ZoneHandler::addTo(chain, context, set_, "auto");
    return {};
  }

  std::shared_ptr<const zones::PublishedZones> publishedZones() const override { return set_; }

 private:
  std::shared_ptr<ZoneSet> set_;
  std::unique_ptr<ZoneFolder> folder_;
};

}  // namespace

extern const resolve::DirectiveType kAutoDirective{.name = "auto",
                                                   .syntax = "auto [ZONES...] { directory DIR ... }",
                                                   .make = resolve::makeDirective<AutoDirective>,
                                                   .check_files = [](config::NamedFiles& files) { files.checkDirectories("directory"); },
                                                   .once = true,
                                                   .defaults = [] { return autoOptions().defaults(); }};

}  // namespace idetcd::directive
