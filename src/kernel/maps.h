// A process's side of the maps of the program in the kernel (layout.h): where it writes what the program answers.
// System calls, which take about a microsecond; settings and zones are mapped memory. It takes no right but that to the
// descriptors, or to the files where the maps are pinned.
//
// Of several processes that have the maps the last one that has called takeOver() feeds them; writes of the others are
// skipped, so that an old process does not overwrite its successor's data. Any thread; one at a time calls what is not
// const.
#pragma once

#include "base/file_descriptor.h"
#include "base/result.h"
#include "kernel/layout.h"

namespace idetcd::kernel {

// In the order of `kMapNames`.
enum class Map : uint8_t { kSettings, kListeners, kZones, kNames, kPointers, kMeters, kPassed };
inline constexpr size_t kMapCount = 7;
// As the program calls them, and as the files are called where they are pinned.
inline constexpr std::array<const char*, kMapCount> kMapNames{"settings", "listeners", "zones", "names",
                                                              "pointers", "meters",    "passed"};
using MapDescriptors = std::array<FileDescriptor, kMapCount>;

// Memory of an array of the kernel's.
template <typename T>
class MappedArray {
 public:
  static Result<MappedArray> make(int fd, size_t count);
  ~MappedArray();
  MappedArray(MappedArray&& other) noexcept : data_(std::exchange(other.data_, nullptr)), count_(other.count_) {}
  MappedArray& operator=(MappedArray&&) = delete;

  T& operator[](size_t i) const { return data_[i]; }

 private:
  MappedArray(T* data, size_t count) : data_(data), count_(count) {}
  T* data_;
  size_t count_;
};

enum class PutOutcome : uint8_t {
  kDone,
  kAbsent,  // there is nothing to be replaced
  kFull,    // the map holds as much as it may, or there is no memory
};

// A hash map of the kernel's. Keys and values are the bytes that layout.h draws.
template <typename Key, typename Value>
class HashMap {
 public:
  explicit HashMap(int fd) : fd_(fd) {}

  // `replaces`: updates an existing key only.
  PutOutcome put(const Key& key, const Value& value, bool replaces = false) const;
  // False: it was not there.
  bool erase(const Key& key) const;
  // Calls visit(key, value) for each; concurrent changes may come once, twice or not. False: out of memory.
  [[nodiscard]] bool forEach(const std::function<void(const Key&, const Value&)>& visit) const;

 private:
  int fd_;
};

class Maps {
 public:
  // Those that are pinned in `directory`. An error: there are none, this process may not use them (kPermissionDenied),
  // or they are of another layout or network namespace; one line that says which.
  static Result<std::shared_ptr<Maps>> open(const std::string& directory);
  static Result<std::shared_ptr<Maps>> make(MapDescriptors descriptors);

  // Whether both objects refer to the same maps.
  bool isSame(const Maps& other) const { return settings().seed[0] == other.settings().seed[0]; }

  const Settings& settings() const { return settings_[0]; }
  size_t maxNames() const { return settings().max_names; }

  // From now on this process feeds the maps.
  void takeOver();
  bool isFeeding() const;
  uint16_t generation() const { return static_cast<uint16_t>(generation_); }

  // An element of an array stays where it is.
  Zone& zone(size_t i) const { return zones_[i]; }
  HashMap<ListenerKey, Listener> listeners() const { return HashMap<ListenerKey, Listener>(fd(Map::kListeners)); }
  HashMap<NameKey, Name> names() const { return HashMap<NameKey, Name>(fd(Map::kNames)); }
  HashMap<NameKey, Pointer> pointers() const { return HashMap<NameKey, Pointer>(fd(Map::kPointers)); }
  // The sum over processors of what was counted.
  Meter meter(size_t i) const;
  std::array<uint64_t, kPassReasons> passed() const;

  // The key of a name: of the bytes of its labels up to the zone, or of a whole name where there is no zone.
  NameKey keyOf(size_t zone, std::span<const uint8_t> labels) const;

  // Removes what `zone` has of other generations than `kept`; kNoGeneration: everything.
  // Stops when another process has taken over. If it is not complete, there was not enough memory to look at all.
  static constexpr int kNoGeneration = -1;
  struct Swept {
    size_t names = 0;
    size_t pointers = 0;
    bool is_complete = false;
  };
  Swept sweep(size_t zone, int kept) const;

  // Rises when names or addresses have left the maps, of whatever zone: others may have room now. Any thread.
  uint64_t departures() const { return departures_.load(std::memory_order_relaxed); }
  void noteDeparture() const { departures_.fetch_add(1, std::memory_order_relaxed); }

  // Ends answers of `zone` and frees its place. False: not free yet (kBeingCleared), or another process took over.
  bool clear(size_t zone) const;

 private:
  Maps(MapDescriptors descriptors, MappedArray<Settings> settings, MappedArray<Zone> zones);
  int fd(Map map) const { return descriptors_[static_cast<size_t>(map)].get(); }

  const MapDescriptors descriptors_;
  const MappedArray<Settings> settings_;
  const MappedArray<Zone> zones_;
  uint32_t generation_ = 0;
  mutable std::atomic<uint64_t> departures_{0};
};

// The network namespace of this process, by its inode.
uint32_t networkNamespace();

// How far the clock of this process's time namespace (time_namespaces(7)) is ahead of the kernel's, by which the
// program compares: deadlines in the maps are the kernel's.
std::chrono::nanoseconds bootClockOffset();

// The value with its check, as the program expects it under `key`.
Name sealed(const NameKey& key, Name name);
Pointer sealed(const NameKey& key, Pointer pointer);

}  // namespace idetcd::kernel
