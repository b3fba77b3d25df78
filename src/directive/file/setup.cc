// The directive `file`: zones from master files.
#include "config/option_table.h"
#include "directive/file/zone_handler.h"
#include "directive/file/zone_loader.h"
#include "directive/file/zone_settings.h"
#include "directive/transfer/published_zones_source.h"
#include "resolve/directive.h"

namespace idetcd::directive {

namespace {

// `file DBFILE [ZONES…]`
Result<void> readLine(config::DirectiveCursor& cursor, ZoneFileSettings& file) {
  if (!cursor.nextArg()) return cursor.argError();
  file.path = cursor.value();
  return config::zonesIfAny(&ZoneFileSettings::zones).read(cursor, &file);
}

// Of earlier versions of CoreDNS, with any arguments.
Result<void> skipUpstream(config::DirectiveCursor& cursor, ZoneFileSettings&) {
  cursor.remainingArgs();
  return {};
}

const config::Options<ZoneFileSettings>& fileOptions() {
  using namespace config;
  static const Options<ZoneFileSettings> kOptions{
      readLine,
      {{"reload", "reload DURATION, like 1m; 0: never", duration(&ZoneFileSettings::reload)},
       {"fallthrough", "fallthrough [ZONES...]", zonesOrAll(&ZoneFileSettings::fallthrough)},
       {"upstream", "upstream", skipUpstream}}};
  return kOptions;
}

void checkFiles(config::NamedFiles& files) {
  const auto& line = files.lines().front();
  if (line.words.size() < 2) return;
  std::vector<dns::Name> zones;
  if (line.words.size() == 2) zones = files.zones();
  for (size_t i = 2; i < line.words.size(); ++i) {
    if (const auto zone = dns::Name::parse(line.words[i])) zones.push_back(*zone);
  }
  for (const dns::Name& zone : zones) {
    zones::ZoneBuilder builder(zone, 0);
    std::vector<zones::ReadFile> unused;
    auto read = zones::readZoneFile(line.words[1], builder, unused);
    if (read) {
      if (const auto built = builder.build(); !built) read = tl::unexpected(built.error());
    }
    if (!read) files.add(line.number, read.error().message);
  }
}

class FileDirective final : public resolve::Configured<std::vector<ZoneFileSettings>>, public PublishedZonesSource {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override {
    ZoneFileSettings file;
    file.zones = config::zonesOf(block.keys);
    if (auto read = fileOptions().read(cursor, file); !read) return read;
    for (const dns::Name& zone : file.zones) {
      const bool known = std::ranges::any_of(
          settings_, [&](const auto& other) { return std::ranges::find(other.zones, zone) != other.zones.end(); });
      if (known) return cursor.error(fmt::format("zone '{}' has a file already", zone.toString()));
    }
    settings_.push_back(std::move(file));
    return {};
  }

  Result<void> prepare(resolve::Process& process, const resolve::Block& block) override {
    set_ = std::make_shared<ZoneSet>(process.hash_seed);
    const Logger log = process.log.named("plugin/file");
    for (const ZoneFileSettings& file : settings_) {
      for (const dns::Name& zone : file.zones) {
        loaders_.push_back(
            std::make_unique<ZoneLoader>(ZoneLoader::Options{file.path, zone, file.fallthrough, file.reload},
                                         ZoneLoader::Context{set_, process.executor, log, process.metrics.scope(),
                                                              &process.state<KeptZones>(), areTransferred(block)}));
        const auto loaded = loaders_.back()->load();
        if (loaded) continue;
        // As in CoreDNS: a file may come later, but one with a mistake is refused.
        if (loaded.error().code != ErrorCode::kNotFound || file.reload.count() == 0)
          return fail("plugin/file: " + loaded.error().message);
        log.warning("{}; it is looked for every {}, and until then {} {}", loaded.error().message,
                    config::durationText(file.reload), zone.toString(),
                    loaders_.back()->usesKept() ? "stays as it is" : "is SERVFAIL");
      }
    }
    return {};
  }

  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override {
    ZoneHandler::addTo(chain, context, set_, "file");
    return {};
  }

  std::shared_ptr<const zones::PublishedZones> publishedZones() const override { return set_; }

 private:
  std::shared_ptr<ZoneSet> set_;
  std::vector<std::unique_ptr<ZoneLoader>> loaders_;
};

}  // namespace

extern const resolve::DirectiveType kFileDirective{.name = "file",
                                                   .syntax = "file DBFILE [ZONES...] [{ ... }]",
                                                   .make = resolve::makeDirective<FileDirective>,
                                                   .check_files = checkFiles,
                                                   .defaults = [] { return fileOptions().defaults(); }};

}  // namespace idetcd::directive
