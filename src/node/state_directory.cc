#include "node/state_directory.h"

#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "node/uuid.h"

namespace idetcd::node {
namespace {

constexpr size_t kMaxStateBytes = 64 << 10;
constexpr mode_t kPrivate = 0600;
constexpr mode_t kForAll = 0644;        // the name is for whoever wants it
constexpr size_t kMaxStemLength = 100;  // with its hash and ending well below NAME_MAX

bool isPlain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_';
}

// Of a text that may be longer than what is read of it.
std::string textOf(const nlohmann::json& object, const char* field) {
  const auto found = object.find(field);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// 0 if there is no such number.
int64_t numberOf(const nlohmann::json& object, const char* field) {
  const auto found = object.find(field);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

std::vector<int64_t> leasesOf(const nlohmann::json& object) {
  std::vector<int64_t> leases;
  const auto found = object.find("leases");
  if (found == object.end() || !found->is_array()) return leases;
  for (const nlohmann::json& lease : *found) {
    if (lease.is_number_integer()) leases.push_back(lease.get<int64_t>());
  }
  return leases;
}

// The lock file's text, a line each; 0: it is not known.
struct LockNote {
  pid_t holder = 0;     // for a message
  pid_t successor = 0;  // the last process that was to go on with the files, and has tried to open them
  int64_t until = 0;    // when that one got them, the holder owned its name until then: nanoseconds of the boot clock
};

LockNote readNote(int fd) {
  char text[64] = {};
  LockNote note;
  if (pread(fd, text, sizeof text - 1, 0) < 0) return note;
  char* rest = text;
  note.holder = static_cast<pid_t>(std::strtol(rest, &rest, 10));
  note.successor = static_cast<pid_t>(std::strtol(rest, &rest, 10));
  note.until = std::strtoll(rest, &rest, 10);
  return note;
}

// At once, so that no other process reads a part of it.
bool writeNote(int fd, const LockNote& note) {
  const std::string text = fmt::format("{}\n{}\n{}\n", note.holder, note.successor, note.until);
  return pwrite(fd, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) &&
         ftruncate(fd, static_cast<off_t>(text.size())) == 0;
}

// Not of another program that writes to this directory.
bool isIdentity(const std::string& path) {
  constexpr std::string_view kBegin = "IDETCD_NAME=";
  std::array<char, kBegin.size()> begin{};
  std::ifstream file(path);
  return file.read(begin.data(), begin.size()) && std::string_view(begin.data(), begin.size()) == kBegin;
}

}  // namespace

std::string stateDirectoryOfService() {
  const char* of_service = std::getenv("STATE_DIRECTORY");
  if (of_service == nullptr) return {};
  const std::string_view list(of_service);
  return std::string(list.substr(0, list.find(':')));
}

std::string fileStem(std::string_view pattern) {
  std::string stem;
  for (const char c : pattern.substr(0, kMaxStemLength)) {
    if (isPlain(c)) {
      if (c == '.' && (stem.empty() || stem.back() == '-')) continue;  // no hidden file, and no "-."
      stem += c;
    } else if (c != '}' && !stem.empty() && stem.back() != '-') {
      stem += '-';
    }
  }
  while (!stem.empty() && (stem.back() == '-' || stem.back() == '.')) stem.pop_back();
  return fmt::format("{}-{:08x}", stem.empty() ? "pattern" : stem, XXH3_64bits(pattern.data(), pattern.size()) >> 32);
}

StateDirectory::StateDirectory(Options options, Logger log)
    : options_(std::move(options)),
      log_(std::move(log)),
      stem_(options_.directory + "/" + fileStem(options_.pattern)) {}

StateDirectory::~StateDirectory() { release(); }

Result<std::shared_ptr<StateDirectory>> StateDirectory::open(Options options, Logger log) {
  const std::shared_ptr<StateDirectory> state(new StateDirectory(std::move(options), std::move(log)));
  std::error_code error;
  std::filesystem::create_directories(state->options_.directory, error);
  if (error) return fail(fmt::format("state directory {}: {}", state->options_.directory, error.message()));
  if (auto locked = state->lock(); !locked) return tl::unexpected(locked.error());

  auto node = state->read();
  if (!node) state->log_.warning("{}; this node starts as a new one", node.error().message);
  state->node_ = node ? *node : RememberedNode{};
  const bool uuid_is_new = state->node_.uuid.empty();
  state->is_saved_.store(!uuid_is_new, std::memory_order_relaxed);
  if (uuid_is_new) {
    KernelRandom random;
    state->node_.uuid = randomUuid(random);
  }
  if (!state->predecessor_ended_) {  // the claim and its leases may be those of a process that goes on
    state->node_.revision = 0;
    state->node_.leases.clear();
  }
  if (!state->predecessor_ended_ || uuid_is_new) state->handed_over_.reset();
  // Here, where it can still be reported: a directory that cannot be written is a mistake of the configuration.
  if (access(state->options_.directory.c_str(), W_OK) != 0)
    return fail(fmt::format("state directory {}: {}", state->options_.directory, std::strerror(errno)));
  return state;
}

Result<RememberedNode> StateDirectory::look(Options options) {
  StateDirectory state(std::move(options), Logger());
  return state.read();
}

Result<void> StateDirectory::take(bool keeps_name) {
  taken_ = true;
  const bool is_left = keeps_name && handed_over_ && BootClock::now() < *handed_over_;
  const Result<void> emptied = is_left ? Result<void>() : writeIdentity("");
  emptyAbandoned(options_.directory);
  const Result<void> written = isSaved() ? Result<void>() : remember(node_);
  return emptied ? written : emptied;
}

// Their process has ended without it: nobody goes on with their names here.
void StateDirectory::emptyAbandoned(const std::string& directory) {
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator(directory, error)) {
    std::filesystem::path path = file.path();
    const bool has_name = path.extension() == ".env" && file.is_regular_file(error) && file.file_size(error) > 0;
    if (!has_name || !isIdentity(path.string())) continue;
    const std::string identity = path.string();
    const int fd = ::open(path.replace_extension(".lock").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) continue;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) (void)!truncate(identity.c_str(), 0);
    close(fd);
  }
}

Result<void> StateDirectory::lock() {
  const auto begin = std::chrono::steady_clock::now();
  const std::string path = stem_ + ".lock";
  constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
  int fd = ::open(path.c_str(), kFlags | O_EXCL, kPrivate);
  lock_is_new_ = fd >= 0;
  if (fd < 0) fd = ::open(path.c_str(), kFlags, kPrivate);
  if (fd < 0) {
    const std::string why = errno == EISDIR ? fmt::format("{} is a directory", path) : std::strerror(errno);
    return fail(fmt::format("state directory {}: {}", options_.directory, why));
  }
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const bool is_used = errno == EWOULDBLOCK;
    std::string why = fmt::format("cannot be locked: {}", std::strerror(errno));
    LockNote note = readNote(fd);
    const pid_t holder = note.holder;
    const bool only_tries = is_used && holder != 0 && holder == options_.predecessor;
    if (only_tries) {
      note.successor = options_.takes_name ? getppid() : 0;
      (void)writeNote(fd, note);
    }
    close(fd);
    if (only_tries) return {};
    if (is_used) {
      why = fmt::format("is in use by another idetcd{} for {}", holder != 0 ? fmt::format(" (process {})", holder) : "",
                        options_.pattern);
    }
    return fail(fmt::format("state directory {} {}", options_.directory, why));
  }
  lock_fd_.store(fd, std::memory_order_relaxed);
  const LockNote before = readNote(fd);
  if (before.successor == getpid() && before.until > 0)
    handed_over_ = BootClock::time_point(std::chrono::nanoseconds(before.until));
  if (!writeNote(fd, {.holder = getpid()})) log_.debug("{}: no pid", path);
  noteWrite(begin);
  return {};
}

void StateDirectory::release() {
  const int fd = lock_fd_.exchange(-1, std::memory_order_relaxed);
  if (fd < 0) return;
  if (handed_over_ && !taken_) (void)!truncate(identityFile().c_str(), 0);
  if (lock_is_new_ && !written_) unlink((stem_ + ".lock").c_str());
  close(fd);
}

Result<RememberedNode> StateDirectory::read() {
  const std::string path = stem_ + ".json";
  const auto text = readFile(path, kMaxStateBytes);
  if (!text && text.error().code == ErrorCode::kNotFound) return RememberedNode{};
  if (!text) return fail(fmt::format("cannot read {}: {}", path, text.error().message), text.error().code);
  const nlohmann::json state = parseJson(*text);
  if (!state.is_object()) return fail(fmt::format("{} is not valid JSON", path));
  if (textOf(state, "pattern") != options_.pattern) return fail(fmt::format("{} is of another pattern", path));
  RememberedNode node{.uuid = textOf(state, "uuid"),
                      .name = textOf(state, "name"),
                      .id = numberOf(state, "id"),
                      .token = numberOf(state, "token"),
                      .cluster_id = std::strtoull(textOf(state, "cluster").c_str(), nullptr, 16),
                      .revision = numberOf(state, "revision"),
                      .leases = leasesOf(state),
                      .drained = state.value("drained", nlohmann::json()) == true};
  if (!isUuid(node.uuid)) return fail(fmt::format("{} holds no UUID", path));
  const std::string before = textOf(state, "machine");
  const std::string here = machine();
  if (!before.empty() && !here.empty() && before != here) {
    log_.warning("{} was written on another machine: this node is not that one, and gets a UUID of its own", path);
    node.uuid.clear();
  }
  const std::string held_by = textOf(state, "holder");
  predecessor_ended_ = !held_by.empty() && held_by == holder();
  return node;
}

Result<void> StateDirectory::replace(const std::string& path, std::string_view contents, mode_t mode) {
  const auto begin = std::chrono::steady_clock::now();
  auto written = replaceFile(path, contents, mode);
  noteWrite(begin);
  return written;
}

void StateDirectory::noteWrite(std::chrono::steady_clock::time_point begin) {
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  if (taken < kSlowWrite || is_slow_) return;
  is_slow_ = true;
  log_.warning(
      "state directory {}: a write has taken {:.1f} s; a claim, a loss and a change of the pattern wait for it",
      options_.directory, taken.count());
}

Result<void> StateDirectory::remember(const RememberedNode& node) {
  written_ = true;
  nlohmann::ordered_json state;
  state["pattern"] = options_.pattern;
  state["uuid"] = node.uuid;
  if (!node.name.empty()) state["name"] = node.name;
  if (node.id > 0) state["id"] = node.id;
  if (node.token > 0) state["token"] = node.token;
  if (node.cluster_id != 0) state["cluster"] = fmt::format("{:x}", node.cluster_id);
  if (node.revision > 0) state["revision"] = node.revision;
  if (!node.leases.empty()) state["leases"] = node.leases;
  if (node.drained) state["drained"] = true;
  if (std::string here = machine(); !here.empty()) state["machine"] = std::move(here);
  if (std::string held_by = holder(); !held_by.empty()) state["holder"] = std::move(held_by);
  node_ = node;
  auto written = replace(stem_ + ".json", toText(state, 1) + "\n", kPrivate);
  is_saved_.store(written.has_value(), std::memory_order_relaxed);
  return written;
}

Result<void> StateDirectory::writeIdentity(std::string_view contents) {
  written_ = true;
  const std::string path = identityFile();
  auto written = replace(path, contents, kForAll);
  if (written || !contents.empty()) return written;
  // A name that is not ours any more must not stand there, come what may.
  if (truncate(path.c_str(), 0) == 0 || unlink(path.c_str()) == 0 || errno == ENOENT) return {};
  return written;
}

void StateDirectory::clearIdentity() const {
  if (lock_fd_.load(std::memory_order_relaxed) < 0) return;
  if (truncate(identityFile().c_str(), 0) != 0) log_.debug("{}: {}", identityFile(), std::strerror(errno));
}

bool StateDirectory::handOver(pid_t successor, BootClock::time_point until) const {
  const int fd = lock_fd_.load(std::memory_order_relaxed);
  if (fd < 0 || successor == 0) return false;
  LockNote note = readNote(fd);
  if (note.successor != successor) return false;
  note.until = std::chrono::nanoseconds(until.time_since_epoch()).count();
  return writeNote(fd, note);
}

void StateDirectory::linkIdentity(bool only) const {
  namespace fs = std::filesystem;
  const fs::path link = fs::path(options_.directory) / "identity";
  const fs::path target = fs::path(identityFile()).filename();
  std::error_code error;
  if (!only) {
    if (fs::is_symlink(link, error)) fs::remove(link, error);
    return;
  }
  if (fs::is_symlink(link, error) && fs::read_symlink(link, error) == target) return;
  const fs::path fresh = link.string() + ".new";
  fs::remove(fresh, error);
  fs::create_symlink(target, fresh, error);
  if (!error) fs::rename(fresh, link, error);
  if (!error) return;
  std::error_code ignored;
  fs::remove(fresh, ignored);
  const bool is_directory = fs::is_directory(fs::symlink_status(link, ignored));  // some kernels say EACCES
  log_.warning("{}: {}", link.string(), is_directory ? "it is a directory" : error.message());
}

// The process that holds the lock: "boot device inode". Empty if that cannot be found out.
std::string StateDirectory::holder() const {
  std::string boot;
  std::ifstream(options_.boot_id_file) >> boot;  // a file of the kernel's has no size that could be asked for
  struct stat lock_file;
  if (boot.empty() || fstat(lock_fd_.load(std::memory_order_relaxed), &lock_file) != 0) return {};
  return fmt::format("{} {} {}", boot, lock_file.st_dev, lock_file.st_ino);
}

// Not the machine-id itself, which is confidential (machine-id(5)).
std::string StateDirectory::machine() const {
  constexpr size_t kMaxMachineId = 4096;
  const auto id = readFile(options_.machine_id_file, kMaxMachineId);
  if (!id || id->empty()) return {};
  const std::string keyed = "idetcd " + *id;
  return fmt::format("{:016x}", XXH3_64bits(keyed.data(), keyed.size()));
}

}  // namespace idetcd::node
