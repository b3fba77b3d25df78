#include "directive/xdp/settings.h"

#include "config/option_table.h"
#include "net/local_addresses.h"

namespace idetcd::directive {

namespace {

constexpr int64_t kMostNames = 16'000'000;

Result<void> readInterfaces(config::DirectiveCursor& cursor, XdpSettings& settings) {
  const auto arguments = cursor.args(1);
  if (!arguments) return tl::unexpected(arguments.error());
  auto& interfaces = settings.attach.interfaces;
  for (const std::string& argument : *arguments) {
    if (!net::mayNameInterface(argument))
      return cursor.error(fmt::format("not the name of an interface: '{}'", argument));
    if (std::ranges::find(interfaces, argument) == interfaces.end()) interfaces.push_back(argument);
  }
  return {};
}

config::Field<XdpSettings> modeOf(kernel::Mode mode) {
  return [mode](config::DirectiveCursor& cursor, XdpSettings& settings) -> Result<void> {
    if (settings.attach.mode != kernel::Mode::kAny && settings.attach.mode != mode)
      return cursor.error("native and generic exclude each other");
    settings.attach.mode = mode;
    return {};
  };
}

Result<void> readPin(config::DirectiveCursor& cursor, XdpSettings& settings) {
  const auto argument = cursor.oneArg();
  if (!argument) return tl::unexpected(argument.error());
  if (!argument->starts_with('/')) return cursor.error(fmt::format("not an absolute path: '{}'", *argument));
  settings.pin = *argument;
  while (settings.pin.size() > 1 && settings.pin.ends_with('/')) settings.pin.pop_back();
  return {};
}

}  // namespace

bool XdpSettings::isSameAttachment(const XdpSettings& other) const {
  return attach.interfaces == other.attach.interfaces && attach.mode == other.attach.mode &&
         attach.max_names == other.attach.max_names && pin == other.pin;
}

const config::Options<XdpSettings>& xdpOptions() {
  using namespace config;
  using kernel::AttachOptions;
  static const Options<XdpSettings> kOptions{
      readInterfaces,
      {{"native", "native", modeOf(kernel::Mode::kNative)},
       {"generic", "generic", modeOf(kernel::Mode::kGeneric)},
       {"required", "required", flag(&XdpSettings::required)},
       {"max_names", "max_names N",
        within(&XdpSettings::attach, number(&AttachOptions::max_names, kernel::kMinNames, kMostNames,
                                            "max_names must be a number from {least} to {most}: '{word}'"))},
       {"pin", "pin DIRECTORY, like /sys/fs/bpf/idetcd", readPin}}};
  return kOptions;
}

}  // namespace idetcd::directive
