// The terminal of `top`: another screen while it lives, keys as they are pressed; as it was when this is gone, by a
// signal too. One at a time; one thread.
#pragma once

#include "base/result.h"

namespace idetcd::cli {

class TopScreen {
 public:
  struct Size {
    size_t width = 80;
    size_t height = 24;
  };
  enum class Event : uint8_t { kTime, kResized, kQuit };

  // REQUIRES: stdin and stdout are terminals.
  static Result<std::unique_ptr<TopScreen>> open();
  ~TopScreen();
  TopScreen(const TopScreen&) = delete;
  TopScreen& operator=(const TopScreen&) = delete;

  Size size() const;
  // In place of what was there. Lines that are longer than the terminal is wide are cut off, and so are those below it.
  Result<void> show(std::string_view text);
  // Until `time`, a new size, or q or Ctrl-C. SIGTERM and SIGHUP restore the terminal, then end the process.
  Event wait(std::chrono::milliseconds time);

 private:
  struct State;
  explicit TopScreen(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The lines of `text` that fit, each with its end; pure.
std::string fitted(std::string_view text, TopScreen::Size size, std::string_view line_end);

}  // namespace idetcd::cli
