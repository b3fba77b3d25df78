// The directive `autopath`: the clients' search list is walked here.
#include "base/file.h"
#include "config/option_table.h"
#include "directive/autopath/autopath.h"
#include "resolve/directive.h"

namespace idetcd::directive {

namespace {

constexpr size_t kMaxFileSize = 1 << 20;

struct AutopathSettings {
  std::vector<dns::Name> zones;   // the block's where the directive names none
  std::string file;               // with the search list
  std::vector<dns::Name> search;  // in its place
};

// What stands on the directive's own line: zones, and the file behind them where the block has no `search`.
struct Lines {
  std::vector<std::string> words{};
  std::vector<dns::Name> search{};
};

const config::Options<Lines>& options() {
  static const config::Options<Lines> kOptions{
      config::Field<Lines>([](config::DirectiveCursor& cursor, Lines& lines) -> Result<void> {
        lines.words = cursor.remainingArgs();
        return {};
      }),
      {{"search", "search DOMAINS...", config::zones(&Lines::search)}}};
  return kOptions;
}

void checkFiles(config::NamedFiles& files) {
  const auto& lines = files.lines();
  if (lines.size() > 1 || lines.front().words.size() < 2) return;
  const auto content = files.read(lines.front().words.back(), lines.front().number);
  if (!content) return;
  if (const auto search = parseSearchList(*content); !search)
    files.add(lines.front().number, fmt::format("{}: {}", lines.front().words.back(), search.error().message));
}

class AutopathDirective final : public resolve::Configured<AutopathSettings> {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override {
    Lines lines;
    if (auto read = options().read(cursor, lines); !read) return read;
    if (lines.search.empty()) {
      if (lines.words.empty()) return cursor.error("autopath needs a file with a search list, or search DOMAINS...");
      settings_.file = std::move(lines.words.back());
      lines.words.pop_back();
      if (settings_.file.starts_with('@'))
        return cursor.error(fmt::format("{}: search lists of other directives are CoreDNS's, not supported here", settings_.file));
    }
    settings_.search = std::move(lines.search);
    auto zones = config::parseZones(cursor, lines.words);
    if (!zones) return tl::unexpected(zones.error());
    settings_.zones = zones->empty() ? config::zonesOf(block.keys) : std::move(*zones);
    return {};
  }
  Result<void> prepare(resolve::Process&, const resolve::Block&) override {
    if (settings_.file.empty()) return {};
    const auto content = readFile(settings_.file, kMaxFileSize);
    if (!content) return fail(fmt::format("plugin/autopath: {}: {}", settings_.file, content.error().message));
    auto search = parseSearchList(*content);
    if (!search) return fail(fmt::format("plugin/autopath: {}: {}", settings_.file, search.error().message));
    settings_.search = std::move(*search);
    return {};
  }
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override {
    chain.add(std::make_unique<Autopath>(chain, chain.size() + 1,
                                         Autopath::Options{.zones = settings_.zones,
                                                           .search = settings_.search,
                                                           .hash_seed = context.process.hash_seed,
                                                           .directive = context.process.names.idOf("autopath")},
                                         context.process.epochs, context.process.metrics.scope()));
    return {};
  }
};

}  // namespace

extern const resolve::DirectiveType kAutopathDirective{.name = "autopath",
                                                       .syntax = "autopath [ZONES...] RESOLV-CONF",
                                                       .make = resolve::makeDirective<AutopathDirective>,
                                                       .check_files = checkFiles,
                                                       .once = true};

}  // namespace idetcd::directive
