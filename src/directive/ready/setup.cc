#include "directive/ready/setup.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "config/option_table.h"
#include "http/endpoints.h"

namespace idetcd::directive {

namespace {

class ReadyParser {
 public:
  explicit ReadyParser(config::DirectiveCursor& cursor) : cursor_(cursor) {}

  // `ready [ADDRESS] { monitor until-ready|continuously }`
  Result<ReadySettings> parse() {
    auto address = http::readListenAddress(cursor_, ":8181");
    const auto head = address ? Result<void>() : tl::unexpected(address.error());
    if (address) settings_.address = std::move(*address);
    static constexpr config::OptionTable<ReadyParser, 1> kOptions{
        {{"monitor", "monitor until-ready, or monitor continuously", &ReadyParser::readMonitor}}};
    const auto read = config::readBlock(cursor_, *this, kOptions, nullptr, head);
    if (!read) return tl::unexpected(read.error());
    return settings_;
  }

 private:
  Result<void> readMonitor() {
    const auto word = cursor_.oneArg();
    if (!word) return tl::unexpected(word.error());
    if (*word != "until-ready" && *word != "continuously") {
      return cursor_.error(fmt::format("monitor type '{}' not supported", *word));
    }
    settings_.monitor = *word == "continuously" ? Readiness::Monitor::kContinuously : Readiness::Monitor::kUntilReady;
    return {};
  }

  config::DirectiveCursor& cursor_;
  ReadySettings settings_;
};

}  // namespace

Result<void> ReadyDirective::read(config::DirectiveCursor& cursor, const resolve::Block&) {
  auto settings = ReadyParser(cursor).parse();
  if (!settings) return tl::unexpected(settings.error());
  settings_ = std::move(*settings);
  return {};
}

Result<void> ReadyDirective::prepare(resolve::Process& process, const resolve::Block&) {
  auto& readiness = process.state<Readiness>();
  const auto listening = process.state<http::Endpoints>().add(
      settings_.address, "/ready", [&readiness](const http::Request&) { return readiness.respond(); });
  return listening ? Result<void>() : fail("plugin/ready: " + listening.error().message);
}

// By now all directives of the block have shared what they have.
Result<void> ReadyDirective::addTo(resolve::Chain&, const resolve::LoopContext& context) {
  if (std::exchange(has_asked_, true)) return {};
  auto& readiness = context.process.state<Readiness>();
  for (const auto& [type, directive] : context.block.directives) {
    if (auto missing = directive->readiness())
      readiness.add(std::string(type->name), std::move(missing), settings_.monitor);
  }
  return {};
}

const resolve::DirectiveType kReadyDirective{.name = "ready",
                                             .syntax = "ready [[HOST]:PORT] [{ ... }]",
                                             .make = resolve::makeDirective<ReadyDirective>,
                                             .once = true};

}  // namespace idetcd::directive
