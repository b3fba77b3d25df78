#include "kernel/program.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <cstdarg>
#include <cstdio>
#include <filesystem>
#include <linux/ethtool.h>
#include <linux/if_link.h>
#include <linux/magic.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <pwd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <kernel/answer.skel.h>

#include "base/hash.h"
#include "base/text.h"
#include "kernel/bpf_call_internal.h"

namespace idetcd::kernel {

namespace {

constexpr std::string_view kLinkPrefix = "link-";
constexpr mode_t kDirectoryMode = 0755;
constexpr mode_t kMapMode = 0660;
constexpr gid_t kRootGroup = 0;
constexpr uid_t kNoUser = static_cast<uid_t>(-1);
constexpr const char* kFreshSuffix = "-new";
constexpr std::string_view kProgramName = "idetcd_answer";  // answer.bpf.c

struct DestroyObject {
  void operator()(answer_bpf* object) const { answer_bpf__destroy(object); }
};
using Object = std::unique_ptr<answer_bpf, DestroyObject>;

// libbpf's text of the last failure: the first line is the cause.
class LibbpfMessages {
 public:
  LibbpfMessages() {
    text().clear();
    libbpf_set_print(&note);
  }
  static std::string firstLine() {
    const std::string& all = text();
    return all.substr(0, all.find('\n'));
  }

 private:
  static std::string& text() {
    static std::string all;
    return all;
  }
  static int note(libbpf_print_level level, const char* format, va_list arguments) {
    if (level != LIBBPF_WARN) return 0;
    std::array<char, 512> line;
    const int size = std::vsnprintf(line.data(), line.size(), format, arguments);
    text() += line.data();
    return size;
  }
};

Error explained(int error, std::string_view what) {
  if (error == EPERM) {
    return {.message = fmt::format("{}: the right is missing (CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON)", what),
            .code = ErrorCode::kPermissionDenied};
  }
  return {.message = fmt::format("{}: {}", what, std::strerror(error))};
}

bpf_map* mapOf(const Object& object, Map map) {
  return bpf_object__find_map_by_name(object->obj, kMapNames[static_cast<size_t>(map)]);
}

// Maps that exist already are used if they have the layout and size of this program.
Result<void> reuse(const Object& object, const std::string& directory, const AttachOptions& options) {
  auto maps = Maps::open(directory);
  if (!maps && maps.error().code == ErrorCode::kPermissionDenied) return tl::unexpected(maps.error());
  if (!maps || (*maps)->maxNames() != options.max_names) return {};
  for (size_t i = 0; i < kMapCount; ++i) {
    const auto pinned = openPinned(fmt::format("{}/{}", directory, kMapNames[i]));
    if (pinned) bpf_map__reuse_fd(mapOf(object, static_cast<Map>(i)), pinned->get());
  }
  return {};
}

Result<Object> load(const AttachOptions& options, const std::string& directory) {
  const LibbpfMessages messages;
  Object object(answer_bpf__open());
  if (!object) return tl::unexpected(explained(errno, "the program"));
  for (const Map map : {Map::kNames, Map::kPointers}) {
    bpf_map__set_max_entries(mapOf(object, map), static_cast<uint32_t>(options.max_names));
  }
  if (!directory.empty()) {
    if (auto reused = reuse(object, directory, options); !reused) return tl::unexpected(reused.error());
  }
  if (const int error = answer_bpf__load(object.get()); error != 0) {
    Error why = explained(-error, "loading the program");
    if (const std::string line = LibbpfMessages::firstLine();
        !line.empty() && why.code != ErrorCode::kPermissionDenied) {
      why.message += fmt::format(" ({})", line);
    }
    return tl::unexpected(std::move(why));
  }
  return object;
}

MapDescriptors duplicate(const Object& object) {
  MapDescriptors descriptors;
  for (size_t i = 0; i < kMapCount; ++i) {
    descriptors[i] = FileDescriptor(dup(bpf_map__fd(mapOf(object, static_cast<Map>(i)))));
  }
  return descriptors;
}

// Of maps that are new: before the program can see a frame.
Result<void> begin(const Object& object, const AttachOptions& options) {
  const int fd = bpf_map__fd(mapOf(object, Map::kSettings));
  const uint32_t key = 0;
  Settings settings;
  if (bpf_map_lookup_elem(fd, &key, &settings) != 0) return failWith(errno, "settings");
  if (settings.layout == kLayout) return {};
  settings = {.seed = {randomHashSeed(), randomHashSeed()},
              .layout = kLayout,
              .max_names = static_cast<__u32>(options.max_names),
              .generation = 0,
              .network = networkNamespace()};
  if (bpf_map_update_elem(fd, &key, &settings, BPF_ANY) != 0) return failWith(errno, "settings");
  return {};
}

Error isTaken(const std::string& interface) {
  return {.message = fmt::format("{} has another XDP program, which is not replaced", interface)};
}

uint32_t flagsOf(const std::string& interface, Mode mode) {
  if (mode == Mode::kNative) return XDP_FLAGS_DRV_MODE;
  return mode == Mode::kGeneric || isVeth(interface) ? XDP_FLAGS_SKB_MODE : 0;
}

Result<FileDescriptor> link(const Object& object, const std::string& interface, Mode mode) {
  const unsigned index = if_nametoindex(interface.c_str());
  if (index == 0) return fail(fmt::format("there is no interface {}", interface));
  bpf_link_create_opts options;
  std::memset(&options, 0, sizeof(options));
  options.sz = sizeof(options);
  options.flags = flagsOf(interface, mode);
  const int fd =
      bpf_link_create(bpf_program__fd(object->progs.idetcd_answer), static_cast<int>(index), BPF_XDP, &options);
  if (fd >= 0) return FileDescriptor(fd);
  if (errno == EBUSY || errno == EEXIST) return tl::unexpected(isTaken(interface));
  if (errno == EOPNOTSUPP && mode == Mode::kNative)
    return fail(fmt::format("the driver of {} has no XDP; write `generic` to go without", interface));
  return tl::unexpected(explained(errno, fmt::format("attaching the program to {}", interface)));
}

// A bpf file system takes no dot in a name, and the name of an interface has no colon.
std::string linkPath(const std::string& directory, std::string interface) {
  std::ranges::replace(interface, '.', ':');
  return fmt::format("{}/{}{}", directory, kLinkPrefix, interface);
}

std::vector<std::string> pinnedInterfaces(const std::string& directory) {
  std::vector<std::string> all;
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator(directory, error)) {
    std::string name = file.path().filename().string();
    std::ranges::replace(name, ':', '.');
    if (name.starts_with(kLinkPrefix)) all.push_back(name.substr(kLinkPrefix.size()));
  }
  std::sort(all.begin(), all.end());
  return all;
}

// Asked over netlink. The error is not that the interface does not exist: then it has no programs.
Result<bpf_xdp_query_opts> programsOn(uint32_t interface) {
  bpf_xdp_query_opts found;
  std::memset(&found, 0, sizeof(found));
  found.sz = sizeof(found);
  const int error = bpf_xdp_query(static_cast<int>(interface), 0, &found);
  if (error != 0 && error != -ENODEV && error != -ENOENT) return failWith(-error, "the programs of an interface");
  return found;
}

// Asked of the interface, since a link does not say it. None: it is not there, or has another program.
std::optional<Mode> modeOf(uint32_t interface, uint32_t program) {
  const auto found = programsOn(interface);
  if (!found || interface == 0 || program == 0) return std::nullopt;
  if (found->drv_prog_id == program) return Mode::kNative;
  return found->skb_prog_id == program ? std::optional(Mode::kGeneric) : std::nullopt;
}

// Of a link to `interface` as it is now; nothing, if it is no such link.
std::optional<Mode> modeOfLink(const FileDescriptor& link, const std::string& interface) {
  const auto info = infoOf<bpf_link_info>(link.get());
  if (!info || info->type != BPF_LINK_TYPE_XDP || info->xdp.ifindex == 0) return std::nullopt;
  if (info->xdp.ifindex != if_nametoindex(interface.c_str())) return std::nullopt;
  return modeOf(info->xdp.ifindex, info->prog_id);
}

// Whether a program, by its number, is called as ours is in each version. Without CAP_SYS_ADMIN the kernel does not say:
// then what is pinned in our directory counts as ours.
bool isOurs(uint32_t program) {
  const FileDescriptor opened(bpf_prog_get_fd_by_id(program));
  if (!opened.isOpen()) return true;
  bpf_prog_info info;
  std::memset(&info, 0, sizeof(info));
  uint32_t size = sizeof(info);
  return bpf_obj_get_info_by_fd(opened.get(), &info, &size) != 0 || std::string_view(info.name) == kProgramName;
}

// Whether the maps that are pinned were made in another network namespace.
bool isElsewhere(const std::string& directory) {
  const auto pinned = openPinned(fmt::format("{}/{}", directory, kMapNames[static_cast<size_t>(Map::kSettings)]));
  if (!pinned) return false;
  const auto info = infoOf<bpf_map_info>(pinned->get());
  Settings settings;
  const uint32_t key = 0;
  if (!info || info->value_size != sizeof(settings)) return false;
  if (bpf_map_lookup_elem(pinned->get(), &key, &settings) != 0) return false;
  return settings.network != networkNamespace();
}

// Before anything is touched: each link that is pinned is ours, and not that of another network namespace.
Result<void> checkLinks(const std::string& directory) {
  for (const std::string& interface : pinnedInterfaces(directory)) {
    const auto pinned = openPinned(linkPath(directory, interface));
    if (!pinned) continue;  // what has no right to it gets no further either
    const auto info = infoOf<bpf_link_info>(pinned->get());
    const bool is_xdp = info && info->type == BPF_LINK_TYPE_XDP;
    if (!is_xdp || !isOurs(info->prog_id)) return tl::unexpected(isTaken(interface));
    if (info->xdp.ifindex != 0 && !modeOf(info->xdp.ifindex, info->prog_id) && isElsewhere(directory))
      return fail(fmt::format(
          "what is pinned in {} belongs to another network namespace: each takes a `pin` of its own", directory));
  }
  return {};
}

Result<void> linkAndPin(const Object& object, const std::string& interface, Mode mode, const std::string& path) {
  const auto made = link(object, interface, mode);
  if (!made) return tl::unexpected(made.error());
  if (bpf_obj_pin(made->get(), path.c_str()) != 0) return failWith(errno, path);
  return {};
}

// Exchanges the program of a pinned link between two frames; replaces a link without interface or in another mode.
Result<void> exchangeOrLink(const Object& object, const std::string& directory, const std::string& interface,
                            Mode mode) {
  const std::string path = linkPath(directory, interface);
  std::optional<Mode> before;  // of a link that has to make room for another one
  if (const auto pinned = openPinned(path)) {
    before = modeOfLink(*pinned, interface);
    if (before && (mode == Mode::kAny || *before == mode)) {
      if (bpf_link_update(pinned->get(), bpf_program__fd(object->progs.idetcd_answer), nullptr) == 0) return {};
      return tl::unexpected(explained(errno, fmt::format("exchanging the program on {}", interface)));
    }
    unlink(path.c_str());  // which takes it off when `pinned` is closed
  }
  auto made = linkAndPin(object, interface, mode, path);
  // Where that fails, the interface is attached to as it was.
  if (!made && before) static_cast<void>(linkAndPin(object, interface, *before, path));
  return made;
}

Result<void> makeDirectory(const std::string& directory) {
  const bool is_new = mkdir(directory.c_str(), kDirectoryMode) == 0;
  if (!is_new && errno != EEXIST) return failWith(errno, directory);
  struct statfs found;
  if (statfs(directory.c_str(), &found) != 0) return failWith(errno, directory);
  if (found.f_type == BPF_FS_MAGIC) return {};
  if (is_new) rmdir(directory.c_str());
  return fail(fmt::format("{} is on no bpf file system; a place that is: /sys/fs/bpf/idetcd", directory));
}

// By name or number; -1: the user that creates a file owns it. Besides it the group of root may use the maps: a loader
// of root without CAP_DAC_OVERRIDE, as in the unit, opens them again by that.
Result<uid_t> ownerOf(const std::string& user) {
  if (user.empty()) return kNoUser;
  if (const passwd* found = getpwnam(user.c_str()); found != nullptr) return found->pw_uid;
  if (const auto number = parseNumber<uid_t>(user)) return *number;
  return fail(fmt::format("there is no user {}", user));
}

// An error here leaves what is attached as it is.
Result<void> checkInterfaces(const std::vector<std::string>& interfaces) {
  for (const std::string& interface : interfaces) {
    if (if_nametoindex(interface.c_str()) == 0) return fail(fmt::format("there is no interface {}", interface));
  }
  return {};
}

// Each takes the place of the one that is there, if any, at once.
Result<void> pinMaps(const Object& object, const std::string& directory, uid_t owner) {
  for (size_t i = 0; i < kMapCount; ++i) {
    const std::string path = fmt::format("{}/{}", directory, kMapNames[i]);
    const std::string fresh = path + kFreshSuffix;
    // Without a user the files keep theirs: a server of root does not take them away from the one that feeds them.
    struct stat there;
    const uid_t user = owner == kNoUser && stat(path.c_str(), &there) == 0 ? there.st_uid : owner;
    unlink(fresh.c_str());
    if (bpf_obj_pin(bpf_map__fd(mapOf(object, static_cast<Map>(i))), fresh.c_str()) != 0) return failWith(errno, fresh);
    if (chmod(fresh.c_str(), kMapMode) != 0 || chown(fresh.c_str(), user, kRootGroup) != 0)
      return failWith(errno, fresh);
    if (rename(fresh.c_str(), path.c_str()) != 0) return failWith(errno, path);
  }
  return {};
}

}  // namespace

bool isVeth(const std::string& interface) {
  const FileDescriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ethtool_drvinfo driver{};
  driver.cmd = ETHTOOL_GDRVINFO;
  ifreq request{};
  interface.copy(request.ifr_name, sizeof(request.ifr_name) - 1);
  request.ifr_data = reinterpret_cast<char*>(&driver);
  return ioctl(socket.get(), SIOCETHTOOL, &request) == 0 && std::string_view(driver.driver) == "veth";
}

bool hasProgram() { return true; }

Result<InterfaceProgram> programOn(const std::string& interface) {
  const unsigned index = if_nametoindex(interface.c_str());
  if (index == 0 && errno != ENODEV) return failWith(errno, interface);
  if (index == 0) return InterfaceProgram{};
  const auto found = programsOn(index);
  if (!found) return tl::unexpected(found.error());
  InterfaceProgram program{.index = index, .mode = std::nullopt};
  if (found->drv_prog_id != 0) program.mode = Mode::kNative;
  if (found->drv_prog_id == 0 && found->skb_prog_id != 0) program.mode = Mode::kGeneric;
  return program;
}

Result<Attachment> attach(const AttachOptions& options) {
  const auto object = load(options, {});
  if (!object) return tl::unexpected(object.error());
  if (auto begun = begin(*object, options); !begun) return tl::unexpected(begun.error());
  auto maps = Maps::make(duplicate(*object));
  if (!maps) return tl::unexpected(maps.error());
  Attachment attachment{.maps = std::move(*maps),
                        .failure = {},
                        .program = FileDescriptor(dup(bpf_program__fd((*object)->progs.idetcd_answer))),
                        .links = {}};
  for (const std::string& interface : options.interfaces) {
    auto made = link(*object, interface, options.mode);
    if (!made) return tl::unexpected(made.error());
    attachment.links.push_back(std::move(*made));
  }
  return attachment;
}

Result<void> attachPinned(const AttachOptions& options, const std::string& directory, const std::string& user) {
  if (auto there = checkInterfaces(options.interfaces); !there) return there;
  const auto owner = ownerOf(user);
  if (!owner) return tl::unexpected(owner.error());
  if (auto made = makeDirectory(directory); !made) return made;
  if (auto checked = checkLinks(directory); !checked) return checked;
  const auto object = load(options, directory);
  if (!object) return tl::unexpected(object.error());
  if (auto begun = begin(*object, options); !begun) return begun;
  if (auto pinned = pinMaps(*object, directory, *owner); !pinned) return pinned;
  for (const std::string& interface : pinnedInterfaces(directory)) {
    const bool is_wanted = std::ranges::find(options.interfaces, interface) != options.interfaces.end();
    if (!is_wanted) unlink(linkPath(directory, interface).c_str());
  }
  // Each gets the new program if it can: one that keeps the old one may read other maps.
  Result<void> all;
  for (const std::string& interface : options.interfaces) {
    const auto linked = exchangeOrLink(*object, directory, interface, options.mode);
    if (!linked && all) all = linked;
  }
  return all;
}

Result<bool> detachPinned(const std::string& directory) {
  if (auto checked = checkLinks(directory); !checked) return tl::unexpected(checked.error());
  bool found = false;
  const auto remove = [&found](const std::string& path) -> Result<void> {
    if (unlink(path.c_str()) == 0) {
      found = true;
    } else if (errno != ENOENT) {
      return failWith(errno, path);
    }
    return {};
  };
  for (const std::string& interface : pinnedInterfaces(directory)) {
    if (auto removed = remove(linkPath(directory, interface)); !removed) return tl::unexpected(removed.error());
  }
  for (const char* name : kMapNames) {
    const std::string path = fmt::format("{}/{}", directory, name);
    unlink((path + kFreshSuffix).c_str());  // of an attach that was killed
    if (auto removed = remove(path); !removed) return tl::unexpected(removed.error());
  }
  rmdir(directory.c_str());
  return found;
}

Result<std::vector<LinkStatus>> readLinks(const std::string& directory) {
  std::vector<LinkStatus> all;
  for (std::string& interface : pinnedInterfaces(directory)) {
    const auto pinned = openPinned(linkPath(directory, interface));
    if (!pinned) return tl::unexpected(pinned.error());
    const auto info = infoOf<bpf_link_info>(pinned->get());
    if (!info) return tl::unexpected(info.error());
    const auto mode = modeOf(info->xdp.ifindex, info->prog_id);
    all.push_back({.interface = std::move(interface),
                   .is_attached = mode.has_value(),
                   .program = info->prog_id,
                   .mode = mode.value_or(Mode::kAny)});
  }
  return all;
}

}  // namespace idetcd::kernel
