#include "base/file_watch.h"

#include <ctime>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/hash.h"

namespace idetcd {

namespace {

// The coarsest time stamps (FAT, old NFS) count in two seconds: two writes within one tick have the same stamp.
constexpr time_t kCoarsestTickSeconds = 2;

}  // namespace

bool WatchedFile::mayHaveChanged() const { return !settled_ || !stamp_ || stamp_ != FileStamp::of(path_); }

Result<std::optional<std::string>> WatchedFile::readIfChanged() {
  // Not to be held up by a FIFO without a writer.
  const FileDescriptor file(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status;
  if (!file.isOpen() || fstat(file.get(), &status) != 0) return failWith(errno);
  const FileStamp before(status);
  if (settled_ && stamp_ == before) return std::nullopt;
  const time_t now = time(nullptr);
  auto content = readToEnd(file, kMaxSize);
  if (!content) return tl::unexpected(content.error());
  const uint64_t hash = hashBytes(content->data(), content->size(), 0);
  const bool same = stamp_ && hash == content_hash_;
  stamp_ = before;
  content_hash_ = hash;
  // The change time is the kernel's own and, unlike the modification time, cannot be set.
  settled_ = fstat(file.get(), &status) == 0 && before == FileStamp(status) &&
             before.changedAtSeconds() + kCoarsestTickSeconds < now;
  if (same) return std::nullopt;
  return std::optional(std::move(*content));
}

struct FileWatch::State : std::enable_shared_from_this<State> {
  State(Executor& executor, WatchedFile watched, Options watch_options, OnRead on_read_file)
      : strand(executor.makeStrand()),
        file(std::move(watched)),
        options(watch_options),
        on_read(std::move(on_read_file)) {}

  void after(std::chrono::milliseconds delay, void (State::*step)()) {
    strand->submitAfter(delay, [seen = weak_from_this(), step] {
      if (const auto state = seen.lock()) (state.get()->*step)();
    });
  }
  void look() { file.mayHaveChanged() ? after(options.settle_time, &State::read) : again(); }
  void read() {
    on_read(file.readIfChanged());
    again();
  }
  void again() { after(options.interval, &State::look); }

  const std::shared_ptr<Executor::Strand> strand;
  WatchedFile file;  // the strand's
  const Options options;
  const OnRead on_read;
};

FileWatch::FileWatch(Executor& executor, WatchedFile file, Options options, OnRead on_read)
    : state_(std::make_shared<State>(executor, std::move(file), options, std::move(on_read))) {
  state_->again();
}

FileWatch::~FileWatch() = default;

}  // namespace idetcd
