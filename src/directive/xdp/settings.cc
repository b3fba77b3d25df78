#include "directive/xdp/settings.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"
#include "config/option_table.h"
#include "net/local_addresses.h"

namespace idetcd::directive {

namespace {

constexpr int64_t kMostNames = 16'000'000;

class XdpParser {
 public:
  explicit XdpParser(config::DirectiveCursor& cursor) : cursor_(cursor) {}

  Result<XdpSettings> parse() {
    const auto head = readInterfaces();
    static constexpr config::OptionTable<XdpParser, 5> kOptions{{
        {"native", "native", &XdpParser::readNative},
        {"generic", "generic", &XdpParser::readGeneric},
        {"required", "required", &XdpParser::readRequired},
        {"max_names", "max_names N", &XdpParser::readMaxNames},
        {"pin", "pin DIRECTORY, like /sys/fs/bpf/idetcd", &XdpParser::readPin},
    }};
    if (auto read = config::readBlock(cursor_, *this, kOptions, nullptr, head); !read) {
      return tl::unexpected(read.error());
    }
    return std::move(settings_);
  }

 private:
  Result<void> readInterfaces() {
    const auto arguments = cursor_.args(1);
    if (!arguments) return tl::unexpected(arguments.error());
    auto& interfaces = settings_.attach.interfaces;
    for (const std::string& argument : *arguments) {
      if (!net::mayNameInterface(argument))
        return cursor_.error(fmt::format("not the name of an interface: '{}'", argument));
      if (std::ranges::find(interfaces, argument) == interfaces.end()) interfaces.push_back(argument);
    }
    return {};
  }

  Result<void> readMode(kernel::Mode mode) {
    if (settings_.attach.mode != kernel::Mode::kAny && settings_.attach.mode != mode)
      return cursor_.error("native and generic exclude each other");
    settings_.attach.mode = mode;
    return {};
  }
  Result<void> readNative() { return readMode(kernel::Mode::kNative); }
  Result<void> readGeneric() { return readMode(kernel::Mode::kGeneric); }

  Result<void> readRequired() {
    settings_.required = true;
    return {};
  }

  Result<void> readMaxNames() {
    const auto argument = cursor_.oneArg();
    if (!argument) return tl::unexpected(argument.error());
    const auto number = parseNumber<int64_t>(*argument);
    if (!number || *number < kernel::kMinNames || *number > kMostNames) {
      return cursor_.error(
          fmt::format("max_names must be a number from {} to {}: '{}'", int{kernel::kMinNames}, kMostNames, *argument));
    }
    settings_.attach.max_names = static_cast<size_t>(*number);
    return {};
  }

  Result<void> readPin() {
    const auto argument = cursor_.oneArg();
    if (!argument) return tl::unexpected(argument.error());
    if (!argument->starts_with('/')) return cursor_.error(fmt::format("not an absolute path: '{}'", *argument));
    settings_.pin = *argument;
    while (settings_.pin.size() > 1 && settings_.pin.ends_with('/')) settings_.pin.pop_back();
    return {};
  }

  config::DirectiveCursor& cursor_;
  XdpSettings settings_;
};

}  // namespace

bool XdpSettings::isSameAttachment(const XdpSettings& other) const {
  return attach.interfaces == other.attach.interfaces && attach.mode == other.attach.mode &&
         attach.max_names == other.attach.max_names && pin == other.pin;
}

Result<XdpSettings> parseXdpSettings(config::DirectiveCursor& cursor) { return XdpParser(cursor).parse(); }

}  // namespace idetcd::directive
