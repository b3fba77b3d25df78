// The directive `tsig`: keys of transaction signatures, and what has to be signed.
#include "config/option_table.h"
#include "directive/tsig/key_file.h"
#include "directive/tsig/signature_source.h"
#include "resolve/directive.h"

namespace idetcd::directive {

namespace {

struct TsigSettings {
  std::vector<dns::Name> zones{};
  std::vector<tsig::Key> keys{};
  std::vector<std::string> files{};
  std::vector<uint16_t> required{};
  bool requires_all = false;
};

Result<void> readKey(config::DirectiveCursor& cursor, TsigSettings& settings) {
  const auto words = cursor.secretArgs(2, 3);
  if (!words) return tl::unexpected(words.error());
  auto key = makeKey((*words)[0], (*words)[1], words->size() > 2 ? (*words)[2] : "hmac-sha256");
  if (!key) return cursor.error(key.error().message);
  settings.keys.push_back(std::move(*key));
  return {};
}

Result<void> readKeyFiles(config::DirectiveCursor& cursor, TsigSettings& settings) {
  auto path = cursor.oneArg();
  if (!path) return tl::unexpected(path.error());
  settings.files.push_back(std::move(*path));
  return {};
}

// `all`, `none`, or types.
Result<void> readRequired(config::DirectiveCursor& cursor, TsigSettings& settings) {
  const auto words = cursor.args(1);
  if (!words) return tl::unexpected(words.error());
  const bool is_word = words->front() == "all" || words->front() == "none";
  if (is_word && words->size() > 1) return cursor.error("all and none stand alone");
  settings.required.clear();
  settings.requires_all = words->front() == "all";
  if (is_word) return {};
  for (const std::string& word : *words) {
    const auto type = dns::kTypeNames.parse(word);
    if (!type) return cursor.error(fmt::format("'{}' is no type", word));
    settings.required.push_back(*type);
  }
  return {};
}

const config::Options<TsigSettings>& tsigOptions() {
  using namespace config;
  static const Options<TsigSettings> kOptions{zonesIfAny(&TsigSettings::zones),
                                              {{"secret", "secret NAME KEY [ALGORITHM]", readKey},
                                               {"secrets", "secrets FILE", readKeyFiles},
                                               {"require", "require TYPE...|all|none", readRequired}}};
  return kOptions;
}

void checkFiles(config::NamedFiles& files) {
  for (const auto& line : files.lines()) {
    if (line.words.size() != 2 || line.words.front() != "secrets") continue;
    if (const auto read = readKeyFile(line.words[1]); !read) files.add(line.number, read.error().message);
  }
}

class TsigDirective final : public resolve::Configured<TsigSettings>, public SignatureSource {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override {
    settings_.zones = config::zonesOf(block.keys);
    if (auto read = tsigOptions().read(cursor, settings_); !read) return read;
    if (settings_.keys.empty() && settings_.files.empty()) return cursor.error("tsig needs a secret");
    return {};
  }

  Result<void> prepare(resolve::Process&, const resolve::Block&) override {
    resolve::SignatureRules rules{.keys = {},
                                  .zones = settings_.zones,
                                  .required = settings_.required,
                                  .requires_all = settings_.requires_all};
    std::vector<tsig::Key> keys = settings_.keys;
    for (const std::string& path : settings_.files) {
      auto read = readKeyFile(path);
      if (!read) return fail("plugin/tsig: " + read.error().message);
      std::ranges::move(*read, std::back_inserter(keys));
    }
    for (tsig::Key& key : keys) {
      const std::string name = key.name.toString();
      if (!rules.keys.add(std::move(key))) return fail(fmt::format("plugin/tsig: there are two keys named '{}'", name));
    }
    rules_ = std::make_shared<const resolve::SignatureRules>(std::move(rules));
    return {};
  }

  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext&) override {
    chain.parts.signatures = rules_;
    return {};
  }

  std::shared_ptr<const resolve::SignatureRules> signatures() const override { return rules_; }

 private:
  std::shared_ptr<const resolve::SignatureRules> rules_;
};

}  // namespace

extern const resolve::DirectiveType kTsigDirective{.name = "tsig",
                                                   .syntax = "tsig [ZONES...] { ... }",
                                                   .make = resolve::makeDirective<TsigDirective>,
                                                   .check_files = checkFiles,
                                                   .once = true};

}  // namespace idetcd::directive
