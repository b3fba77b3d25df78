#include "kernel/maps.h"

#include <fstream>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernel/bpf_call_internal.h"

namespace idetcd::kernel {

namespace {

constexpr size_t kBatch = 4096;

// As many values as the kernel has of each element: of the processors that could ever be there.
size_t readPossibleProcessors() {
  size_t last = 0;
  FILE* file = std::fopen("/sys/devices/system/cpu/possible", "re");
  if (file == nullptr) return 1;
  size_t first = 0;
  for (int read = 0; (read = std::fscanf(file, "%zu-%zu", &first, &last)) > 0;) {
    if (read == 1) last = first;
    if (std::fgetc(file) != ',') break;
  }
  std::fclose(file);
  return last + 1;
}

size_t possibleProcessors() {
  static const size_t kCount = readPossibleProcessors();
  return kCount;
}

// The values of all processors, one behind the other.
template <typename T>
std::vector<T> lookUpEach(int fd, uint32_t key) {
  static_assert(sizeof(T) % 8 == 0);
  std::vector<T> values(possibleProcessors());
  bpf_attr attributes = emptyAttributes();
  attributes.map_fd = static_cast<uint32_t>(fd);
  attributes.key = pointerOf(&key);
  attributes.value = pointerOf(values.data());
  if (callBpf(BPF_MAP_LOOKUP_ELEM, attributes) != 0) values.clear();
  return values;
}

Error unusable(const std::string& directory, std::string_view why) {
  return {.message = fmt::format("the maps in {} cannot be used: {}", directory, why)};
}

std::string_view labelsOf(const bpf_map_info& info) { return {info.name, strnlen(info.name, sizeof(info.name))}; }

// Another version's maps are left alone.
Result<void> checkShapes(const MapDescriptors& descriptors) {
  static constexpr std::array<std::pair<size_t, size_t>, kMapCount> kSizes{{{4, sizeof(Settings)},
                                                                            {sizeof(ListenerKey), sizeof(Listener)},
                                                                            {4, sizeof(Zone)},
                                                                            {sizeof(NameKey), sizeof(Name)},
                                                                            {sizeof(NameKey), sizeof(Pointer)},
                                                                            {4, sizeof(Meter)},
                                                                            {4, sizeof(uint64_t)}}};
  for (size_t i = 0; i < kMapCount; ++i) {
    const auto info = infoOf<bpf_map_info>(descriptors[i].get());
    if (!info) return tl::unexpected(info.error());
    if (labelsOf(*info) != kMapNames[i] || info->key_size != kSizes[i].first || info->value_size != kSizes[i].second)
      return fail("they are of another version of the program; run idetcd xdp attach");
  }
  return {};
}

}  // namespace

long callBpf(bpf_cmd command, bpf_attr& attributes) {
  return syscall(SYS_bpf, static_cast<int>(command), &attributes, sizeof(attributes));
}

Result<FileDescriptor> openPinned(const std::string& path) {
  bpf_attr attributes = emptyAttributes();
  attributes.pathname = pointerOf(path.c_str());
  const long fd = callBpf(BPF_OBJ_GET, attributes);
  if (fd < 0) {
    const bool is_denied = errno == EPERM || errno == EACCES;
    auto failed = failWith(errno, path);
    if (is_denied) failed.value().code = ErrorCode::kPermissionDenied;
    return failed;
  }
  return FileDescriptor(static_cast<int>(fd));
}

template <typename Info>
Result<Info> infoOf(int fd) {
  Info info;
  std::memset(&info, 0, sizeof(info));
  bpf_attr attributes = emptyAttributes();
  attributes.info.bpf_fd = static_cast<uint32_t>(fd);
  attributes.info.info_len = sizeof(info);
  attributes.info.info = pointerOf(&info);
  if (callBpf(BPF_OBJ_GET_INFO_BY_FD, attributes) != 0) return failWith(errno, "BPF_OBJ_GET_INFO_BY_FD");
  return info;
}
template Result<bpf_map_info> infoOf(int fd);
template Result<bpf_link_info> infoOf(int fd);

template <typename T>
Result<MappedArray<T>> MappedArray<T>::make(int fd, size_t count) {
  static_assert(sizeof(T) % 8 == 0);
  void* data = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return failWith(errno, "mmap of a map");
  return MappedArray(static_cast<T*>(data), count);
}

template <typename T>
MappedArray<T>::~MappedArray() {
  if (data_ != nullptr) munmap(data_, count_ * sizeof(T));
}

template class MappedArray<Settings>;
template class MappedArray<Zone>;

template <typename Key, typename Value>
PutOutcome HashMap<Key, Value>::put(const Key& key, const Value& value, bool replaces) const {
  bpf_attr attributes = emptyAttributes();
  attributes.map_fd = static_cast<uint32_t>(fd_);
  attributes.key = pointerOf(&key);
  attributes.value = pointerOf(&value);
  attributes.flags = replaces ? BPF_EXIST : BPF_ANY;
  if (callBpf(BPF_MAP_UPDATE_ELEM, attributes) == 0) return PutOutcome::kDone;
  return errno == ENOENT ? PutOutcome::kAbsent : PutOutcome::kFull;
}

template <typename Key, typename Value>
bool HashMap<Key, Value>::erase(const Key& key) const {
  bpf_attr attributes = emptyAttributes();
  attributes.map_fd = static_cast<uint32_t>(fd_);
  attributes.key = pointerOf(&key);
  return callBpf(BPF_MAP_DELETE_ELEM, attributes) == 0;
}

template <typename Key, typename Value>
bool HashMap<Key, Value>::forEach(const std::function<void(const Key&, const Value&)>& visit) const {
  std::vector<Key> keys(kBatch);
  std::vector<Value> values(kBatch);
  uint32_t position = 0;
  bool begun = false;
  for (bool more = true; more;) {
    bpf_attr attributes = emptyAttributes();
    attributes.batch.map_fd = static_cast<uint32_t>(fd_);
    attributes.batch.in_batch = begun ? pointerOf(&position) : 0;
    attributes.batch.out_batch = pointerOf(&position);
    attributes.batch.keys = pointerOf(keys.data());
    attributes.batch.values = pointerOf(values.data());
    attributes.batch.count = static_cast<uint32_t>(keys.size());
    const long done = callBpf(BPF_MAP_LOOKUP_BATCH, attributes);
    if (done != 0 && errno == ENOSPC) {  // a bucket with more than this
      keys.resize(keys.size() * 2);
      values.resize(keys.size());
      continue;
    }
    if (done != 0 && errno != ENOENT) return false;
    more = done == 0;  // ENOENT: these were the last
    begun = true;
    for (size_t i = 0; i < attributes.batch.count; ++i) visit(keys[i], values[i]);
  }
  return true;
}

template class HashMap<ListenerKey, Listener>;
template class HashMap<NameKey, Name>;
template class HashMap<NameKey, Pointer>;

Maps::Maps(MapDescriptors descriptors, MappedArray<Settings> settings, MappedArray<Zone> zones)
    : descriptors_(std::move(descriptors)), settings_(std::move(settings)), zones_(std::move(zones)) {}

Result<std::shared_ptr<Maps>> Maps::open(const std::string& directory) {
  MapDescriptors descriptors;
  for (size_t i = 0; i < kMapCount; ++i) {
    auto map = openPinned(fmt::format("{}/{}", directory, kMapNames[i]));
    if (!map) return tl::unexpected(map.error());
    descriptors[i] = std::move(*map);
  }
  auto maps = make(std::move(descriptors));
  if (!maps) return tl::unexpected(unusable(directory, maps.error().message));
  // Another machine's, as to whoever shares only the file system: a container, or the host of one.
  if ((*maps)->settings().network != networkNamespace())
    return fail(
        fmt::format("the maps in {} belong to another network namespace: each takes a `pin` of its own", directory));
  return maps;
}

Result<std::shared_ptr<Maps>> Maps::make(MapDescriptors descriptors) {
  if (auto same = checkShapes(descriptors); !same) return tl::unexpected(same.error());
  auto settings = MappedArray<Settings>::make(descriptors[static_cast<size_t>(Map::kSettings)].get(), 1);
  if (!settings) return tl::unexpected(settings.error());
  if ((*settings)[0].layout != kLayout) return fail("they are of another version of the program");
  auto zones = MappedArray<Zone>::make(descriptors[static_cast<size_t>(Map::kZones)].get(), kZones);
  if (!zones) return tl::unexpected(zones.error());
  return std::shared_ptr<Maps>(new Maps(std::move(descriptors), std::move(*settings), std::move(*zones)));
}

void Maps::takeOver() { generation_ = std::atomic_ref(settings_[0].generation).fetch_add(1) + 1; }

bool Maps::isFeeding() const {
  return std::atomic_ref(settings_[0].generation).load(std::memory_order_relaxed) == generation_;
}

Meter Maps::meter(size_t i) const {
  static_assert(sizeof(Meter) % sizeof(uint64_t) == 0);
  std::array<uint64_t, sizeof(Meter) / sizeof(uint64_t)> sums{};
  using Words = decltype(sums);
  for (const Words& words : lookUpEach<Words>(fd(Map::kMeters), static_cast<uint32_t>(i))) {
    for (size_t word = 0; word < words.size(); ++word) sums[word] += words[word];
  }
  Meter meter;
  std::memcpy(&meter, sums.data(), sizeof(meter));
  return meter;
}

std::array<uint64_t, kPassReasons> Maps::passed() const {
  std::array<uint64_t, kPassReasons> sums{};
  for (uint32_t reason = 0; reason < kPassReasons; ++reason) {
    for (const uint64_t count : lookUpEach<uint64_t>(fd(Map::kPassed), reason)) sums[reason] += count;
  }
  return sums;
}

NameKey Maps::keyOf(size_t zone, std::span<const uint8_t> labels) const {
  NameKey key;
  hashBegin(key.hash, settings().seed, static_cast<uint8_t>(zone));
  for (const uint8_t byte : labels) hashStep(key.hash, byte);
  return key;
}

Maps::Swept Maps::sweep(size_t zone, int kept) const {
  const auto is_left = [zone, kept](const auto& value) { return value.zone == zone && value.generation != kept; };
  std::vector<NameKey> unwanted;
  Swept swept;
  swept.is_complete = names().forEach([&](const NameKey& key, const Name& name) {
    if (is_left(name)) unwanted.push_back(key);
  });
  for (const NameKey& key : unwanted) swept.names += isFeeding() && names().erase(key) ? 1 : 0;
  unwanted.clear();
  swept.is_complete &= pointers().forEach([&](const NameKey& key, const Pointer& pointer) {
    if (is_left(pointer)) unwanted.push_back(key);
  });
  for (const NameKey& key : unwanted) swept.pointers += isFeeding() && pointers().erase(key) ? 1 : 0;
  if (swept.names + swept.pointers > 0) noteDeparture();
  return swept;
}

bool Maps::clear(size_t zone) const {
  if (!isFeeding()) return false;
  Zone& place = this->zone(zone);
  // First: a process that is killed in the midst leaves no zone that looks whole.
  std::atomic_ref(place.identity).store(kBeingCleared, std::memory_order_release);
  std::atomic_ref(place.fresh_until).store(0, std::memory_order_release);
  std::atomic_ref(place.name_size).store(0, std::memory_order_release);
  std::atomic_ref(place.is_whole).store(0, std::memory_order_release);
  if (!sweep(zone, kNoGeneration).is_complete || !isFeeding()) return false;
  std::atomic_ref(place.identity).store(0, std::memory_order_release);
  return true;
}

uint32_t networkNamespace() {
  struct stat found {};
  return stat("/proc/self/ns/net", &found) == 0 ? static_cast<uint32_t>(found.st_ino) : 0;
}

std::chrono::nanoseconds bootClockOffset() {
  // Lines of a clock's name, seconds and nanoseconds. There is no such file where the kernel has no such namespaces.
  static const std::chrono::nanoseconds kOffset = [] {
    std::ifstream file("/proc/self/timens_offsets");
    std::string clock;
    int64_t seconds = 0;
    int64_t nanoseconds = 0;
    while (file >> clock >> seconds >> nanoseconds) {
      if (clock == "boottime" || clock == "7")
        return std::chrono::seconds(seconds) + std::chrono::nanoseconds(nanoseconds);
    }
    return std::chrono::nanoseconds(0);
  }();
  return kOffset;
}

Name sealed(const NameKey& key, Name name) {
  uint64_t words[sizeof(Name) / sizeof(uint64_t)];
  std::memcpy(words, &name, sizeof(name));
  name.check = checkOf(key.hash, reinterpret_cast<const __u64*>(words), kNameWords);
  return name;
}

Pointer sealed(const NameKey& key, Pointer pointer) {
  uint64_t words[sizeof(Pointer) / sizeof(uint64_t)];
  std::memcpy(words, &pointer, sizeof(pointer));
  pointer.check = checkOf(key.hash, reinterpret_cast<const __u64*>(words), kPointerWords);
  return pointer;
}

}  // namespace idetcd::kernel
