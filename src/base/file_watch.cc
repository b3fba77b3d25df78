#include "base/file_watch.h"

namespace idetcd {

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
