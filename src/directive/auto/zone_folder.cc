#include "directive/auto/zone_folder.h"

#include <filesystem>

#include "base/text.h"

namespace idetcd::directive {

namespace {

constexpr std::chrono::milliseconds kSecondLook{1000};  // after the first one, and after a file was missed

using Found = std::map<std::string, std::filesystem::path>;  // of each zone's name

bool isHigher(const std::filesystem::path& a, const std::filesystem::path& b) {
  const auto depth = [](const std::filesystem::path& path) { return std::distance(path.begin(), path.end()); };
  return std::pair(depth(a), std::cref(a).get()) < std::pair(depth(b), std::cref(b).get());
}

}  // namespace

std::optional<dns::Name> originOfFile(const std::string& file_name, const re2::RE2& pattern, std::string_view origin) {
  std::vector<re2::StringPiece> groups(static_cast<size_t>(pattern.NumberOfCapturingGroups()) + 1);
  const auto count = static_cast<int>(groups.size());
  if (!pattern.Match(file_name, 0, file_name.size(), re2::RE2::UNANCHORED, groups.data(), count)) return std::nullopt;
  std::string text;
  for (size_t pos = 0; pos < origin.size();) {
    const size_t end = origin[pos] == '{' ? origin.find('}', pos) : origin.npos;
    const auto group = end != origin.npos ? parseNumber<size_t>(origin.substr(pos + 1, end - pos - 1)) : std::nullopt;
    if (!group) {
      text += origin[pos++];
      continue;
    }
    if (*group < groups.size()) text.append(groups[*group].data() != nullptr ? groups[*group].as_string() : "");
    pos = end + 1;
  }
  auto name = dns::Name::parse(text);
  return name ? std::optional(*name) : std::nullopt;
}

struct ZoneFolder::State : std::enable_shared_from_this<State> {
  State(AutoSettings folder_settings, ZoneLoader::Context loader_context)
      : settings(std::move(folder_settings)),
        context(std::move(loader_context)),
        strand(context.executor->makeStrand()),
        pattern(settings.pattern, re2::RE2::Quiet) {}

  struct Served {
    std::filesystem::path path;
    std::unique_ptr<ZoneLoader> loader;
    bool was_missed = false;  // by the last look
  };

  // What was found, though an error may have hidden some of it.
  std::pair<Found, std::error_code> find() const {
    std::pair<Found, std::error_code> found;
    findWithin(settings.directory, found.first, found.second);
    return found;
  }

  void findWithin(const std::filesystem::path& folder, Found& found, std::error_code& failed) const {
    std::error_code error;
    std::filesystem::directory_iterator entry(folder, error);
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
      std::error_code unknown;
      if (entry->symlink_status(unknown).type() == std::filesystem::file_type::directory)
        findWithin(entry->path(), found, failed);
      else
        unknown = findZone(*entry, found);
      if (unknown && unknown != std::errc::no_such_file_or_directory) failed = unknown;
    }
    if (error) failed = error;
  }

  // Fails if it cannot be said whether it is a file.
  std::error_code findZone(const std::filesystem::directory_entry& entry, Found& found) const {
    const auto origin = originOfFile(entry.path().filename().string(), pattern, settings.origin);
    const bool is_ours =
        origin && std::ranges::any_of(settings.zones, [&](const dns::Name& zone) { return origin->isWithin(zone); });
    std::error_code unknown;
    if (!is_ours || !entry.is_regular_file(unknown)) return unknown;
    auto& path = found[origin->toString()];
    if (path.empty() || isHigher(entry.path(), path)) path = entry.path();
    return {};
  }

  // While something cannot be read, the zones that are there stay as they are.
  void look() {
    const auto [found, error] = find();
    if (error && !unreadable)
      context.log.warning("{}: {}; its zones stay as they are", settings.directory, error.message());
    unreadable = static_cast<bool>(error);
    if (!unreadable) dropMissing(found);
    for (const auto& [origin, path] : found) {
      Served& zone = served[origin];
      if (zone.path.empty() || (!unreadable && zone.path != path)) serve(zone, origin, path);
    }
  }

  // A file that is missed once may be about to be replaced by another one.
  void dropMissing(const Found& found) {
    for (auto item = served.begin(); item != served.end();) {
      const bool is_missed = !found.contains(item->first);
      const bool is_gone = std::exchange(item->second.was_missed, is_missed) && is_missed;
      if (is_gone) drop(item->first);
      item = is_gone ? served.erase(item) : std::next(item);
    }
  }

  void drop(const std::string& origin) {
    context.log.info("{}: its file is gone", origin);
    served.at(origin).loader.reset();
    context.set->erase(dns::Name::parse(origin).value());
  }

  void serve(Served& zone, const std::string& origin, const std::filesystem::path& path) {
    zone.path = path;
    zone.loader = std::make_unique<ZoneLoader>(ZoneLoader::Options{.path = path.string(),
                                                                   .origin = dns::Name::parse(origin).value(),
                                                                   .reload = settings.reload,
                                                                   .is_served_empty = false},
                                               context);
    if (const auto loaded = zone.loader->load(); !loaded)
      context.log.warning("{}; {} {}", loaded.error().message, origin,
                          zone.loader->usesKept() ? "stays as it is" : "is not served");
  }

  // `soon`: something may be about to come.
  void again(bool soon) {
    strand->submitAfter(soon ? std::min(settings.reload, kSecondLook) : settings.reload, [seen = weak_from_this()] {
      const auto state = seen.lock();
      if (!state) return;
      state->look();
      state->again(std::ranges::any_of(state->served, [](const auto& item) { return item.second.was_missed; }));
    });
  }

  const AutoSettings settings;
  const ZoneLoader::Context context;
  const std::shared_ptr<Executor::Strand> strand;
  const re2::RE2 pattern;
  bool unreadable = false;
  std::map<std::string, Served> served;
};

ZoneFolder::ZoneFolder(AutoSettings settings, ZoneLoader::Context context)
    : state_(std::make_shared<State>(std::move(settings), std::move(context))) {}

ZoneFolder::~ZoneFolder() = default;

void ZoneFolder::look() { state_->look(); }

void ZoneFolder::load() {
  look();
  if (state_->settings.reload.count() > 0) state_->again(true);
}

}  // namespace idetcd::directive
