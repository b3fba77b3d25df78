// The directive `tls`: what a block's listeners for tls:// and https:// show their clients, and ask of them.
#include "base/file_watch.h"
#include "config/option_table.h"
#include "net/tls_stream.h"
#include "resolve/directive.h"

namespace idetcd::directive {

namespace {

using TlsSettings = net::TlsServer::Options;

// `tls CERT KEY [CA]`
Result<void> readTlsFiles(config::DirectiveCursor& cursor, TlsSettings& settings) {
  const auto files = cursor.args(2, 3);
  if (!files) return tl::unexpected(files.error());
  settings.certificate_file = (*files)[0];
  settings.key_file = (*files)[1];
  if (files->size() == 3) settings.ca_file = (*files)[2];
  return {};
}

const config::Options<TlsSettings>& tlsOptions() {
  using Auth = net::TlsServer::ClientAuth;
  static const config::Options<TlsSettings> kOptions{
      readTlsFiles,
      {{"client_auth", "client_auth nocert|request|require|verify_if_given|require_and_verify",
        config::choice(&TlsSettings::client_auth,
                       {{"nocert", Auth::kNone},
                        {"request", Auth::kRequest},
                        {"require", Auth::kRequire},
                        {"verify_if_given", Auth::kVerifyIfGiven},
                        {"require_and_verify", Auth::kRequireAndVerify}},
                       "unknown authentication type '{word}'")}}};
  return kOptions;
}

// The files of one `tls`, read again when they change, or could not be used. Any thread.
class Certificate : public std::enable_shared_from_this<Certificate> {
 public:
  // Blocks on the file system.
  static Result<std::shared_ptr<const Certificate>> open(const TlsSettings& settings, Executor& executor,
                                                         const Logger& log) {
    std::vector<WatchedFile> files;
    for (const std::string* path : {&settings.certificate_file, &settings.key_file, &settings.ca_file}) {
      if (path->empty()) continue;
      files.emplace_back(*path);
      (void)files.back().readIfChanged();  // what is wrong with it is said below
    }
    auto server = net::TlsServer::make(settings);
    if (!server) return tl::unexpected(server.error());
    auto certificate = std::make_shared<Certificate>(std::move(*server), executor, std::move(files), log);
    certificate->after(kInterval, &Certificate::look);
    return certificate;
  }
  Certificate(std::shared_ptr<net::TlsServer> server, Executor& executor, std::vector<WatchedFile> files, Logger log)
      : server_(std::move(server)), strand_(executor.makeStrand()), files_(std::move(files)), log_(std::move(log)) {}

  net::TlsServer* server() const { return server_.get(); }

 private:
  static constexpr std::chrono::milliseconds kInterval{1000};
  // Who renews a certificate writes two files: both are there after a while.
  static constexpr std::chrono::milliseconds kSettleTime{500};

  void after(std::chrono::milliseconds delay, void (Certificate::*step)()) {
    strand_->submitAfter(delay, [seen = weak_from_this(), step] {
      if (const auto certificate = seen.lock()) (certificate.get()->*step)();
    });
  }
  void look() {
    const bool reads = !changed_.empty() || std::ranges::any_of(files_, &WatchedFile::mayHaveChanged);
    reads ? after(kSettleTime, &Certificate::read) : after(kInterval, &Certificate::look);
  }
  void read() {
    reload();
    after(kInterval, &Certificate::look);
  }
  void reload() {
    for (WatchedFile& file : files_) {
      const auto content = file.readIfChanged();
      if (!content) return warn(fmt::format("{}: {}; what it said last stays", file.path(), content.error().message));
      if (*content) changed_ = file.path();
    }
    if (!changed_.empty()) {
      if (const auto read = server_->reload(); !read) {
        return warn(fmt::format("{} has changed, but cannot be used: {}; what was read last stays", changed_,
                                read.error().message));
      }
      log_.info("{} has changed, and counts for connections from now on", changed_);
    }
    changed_.clear();
    warned_.clear();
  }
  // Once, however often it is tried.
  void warn(std::string text) {
    if (text != warned_) log_.warning("{}", text);
    warned_ = std::move(text);
  }

  const std::shared_ptr<net::TlsServer> server_;
  const std::shared_ptr<Executor::Strand> strand_;
  std::vector<WatchedFile> files_;  // the strand's, as what follows
  const Logger log_;
  std::string changed_;  // a file whose change does not count yet; empty: none
  std::string warned_;
};

// Those in use: blocks with the same `tls` share one, and a reload goes on with it.
class Certificates final : public resolve::ProcessState {
 public:
  explicit Certificates(resolve::Process& process)
      : executor_(process.executor), log_(process.log.named("plugin/tls")) {}

  Result<std::shared_ptr<const Certificate>> of(const TlsSettings& settings) {
    std::erase_if(all_, [](const auto& one) { return one.second.expired(); });
    for (const auto& [of, certificate] : all_) {
      if (of != settings) continue;
      if (auto open = certificate.lock()) return open;
    }
    auto opened = Certificate::open(settings, *executor_, log_);
    if (opened) all_.emplace_back(settings, *opened);
    return opened;
  }

 private:
  const std::shared_ptr<Executor> executor_;
  const Logger log_;
  std::vector<std::pair<TlsSettings, std::weak_ptr<const Certificate>>> all_;  // of the configuration that is built
};

void checkFiles(config::NamedFiles& files) {
  const auto& line = files.lines().front();
  if (line.words.size() < 3 || line.words.size() > 4) return;
  bool readable = true;
  for (size_t i = 1; i < line.words.size(); ++i) readable &= files.read(line.words[i], line.number).has_value();
  if (!readable) return;
  const auto usable = net::TlsServer::make({.certificate_file = line.words[1],
                                            .key_file = line.words[2],
                                            .ca_file = line.words.size() > 3 ? line.words[3] : std::string()});
  if (!usable) files.add(line.number, fmt::format("{}; write: tls CERT KEY [CA], PEM files", usable.error().message));
}

class TlsDirective final : public resolve::Configured<TlsSettings> {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block&) override {
    return tlsOptions().read(cursor, settings_);
  }
  Result<void> prepare(resolve::Process& process, const resolve::Block&) override {
    auto opened = process.state<Certificates>().of(settings_);
    if (!opened) return fail(fmt::format("plugin/tls: {}", opened.error().message));
    certificate_ = std::move(*opened);
    return {};
  }
  std::shared_ptr<const net::TlsServer> tlsServer() const override { return {certificate_, certificate_->server()}; }

 private:
  std::shared_ptr<const Certificate> certificate_;
};

}  // namespace

extern const resolve::DirectiveType kTlsDirective{.name = "tls",
                                                  .syntax = "tls CERT KEY [CA] [{ client_auth ... }]",
                                                  .make = resolve::makeDirective<TlsDirective>,
                                                  .check_files = checkFiles,
                                                  .once = true,
                                                  .defaults = [] { return tlsOptions().defaults(); }};

}  // namespace idetcd::directive
