#include "cli/top_screen.h"

#include <csignal>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "cli/text.h"

namespace idetcd::cli {
namespace {

constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};

// The last signal of those that end it or stop it, and whether others have come. Read between two waits.
volatile sig_atomic_t ending = 0;    // NOLINT: what a handler may write
volatile sig_atomic_t stopping = 0;  // NOLINT
volatile sig_atomic_t resized = 0;   // NOLINT

void note(int signal) {
  if (signal == SIGTSTP) {
    stopping = 1;
  } else if (signal == SIGWINCH || signal == SIGCONT) {
    resized = 1;
  } else {
    ending = signal;
  }
}

}  // namespace

struct TopScreen::State {
  termios before{};
  std::array<struct sigaction, kSignals.size()> actions{};
  sigset_t mask{};  // while it waits; otherwise its signals are held back

  bool enter() const {
    termios raw = before;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    // The other screen, without a cursor.
    return ::tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0 && print(STDOUT_FILENO, "\x1b[?1049h\x1b[?25l").has_value();
  }
  void leave() const {
    (void)print(STDOUT_FILENO, "\x1b[?25h\x1b[?1049l");
    ::tcsetattr(STDIN_FILENO, TCSANOW, &before);
  }
  // As the process had them.
  void giveSignalsBack() const {
    for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &actions[i], nullptr);
    ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  }
  void takeSignals() {
    sigset_t held;
    sigemptyset(&held);
    for (const int signal : kSignals) sigaddset(&held, signal);
    ::pthread_sigmask(SIG_BLOCK, &held, &mask);
    struct sigaction action {};
    action.sa_handler = note;  // NOLINT(cppcoreguidelines-pro-type-union-access): as the interface is
    for (size_t i = 0; i < kSignals.size(); ++i) {
      ::sigaction(kSignals[i], nullptr, &actions[i]);
      // A signal that is ignored, as by nohup, stays so.
      if (actions[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);  // NOLINT
    }
  }
};

TopScreen::TopScreen(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<TopScreen>> TopScreen::open() {
  auto state = std::make_unique<State>();
  if (::tcgetattr(STDIN_FILENO, &state->before) != 0) return failWith(errno);
  ending = 0;
  stopping = 0;
  resized = 0;
  state->takeSignals();
  auto screen = std::unique_ptr<TopScreen>(new TopScreen(std::move(state)));
  if (!screen->state_->enter()) return failWith(errno);
  return screen;
}

TopScreen::~TopScreen() {
  state_->leave();
  state_->giveSignalsBack();
}

TopScreen::Size TopScreen::size() const {
  winsize found{};
  Size size;
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &found) != 0) return size;
  if (found.ws_col > 0) size.width = found.ws_col;
  if (found.ws_row > 0) size.height = found.ws_row;
  return size;
}

Result<void> TopScreen::show(std::string_view text) {
  // From the upper left; each line and what is below is wiped, so that nothing flickers.
  return print(STDOUT_FILENO, "\x1b[H" + fitted(text, size(), "\x1b[K\n") + "\x1b[J");
}

TopScreen::Event TopScreen::wait(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (true) {
    const auto left = std::chrono::steady_clock::now() >= end
                          ? std::chrono::nanoseconds(0)
                          : std::chrono::nanoseconds(end - std::chrono::steady_clock::now());
    timespec timeout{.tv_sec = left.count() / 1'000'000'000, .tv_nsec = left.count() % 1'000'000'000};
    pollfd input{STDIN_FILENO, POLLIN, 0};
    const int ready = ::ppoll(&input, 1, &timeout, &state_->mask);
    if (ending == SIGINT) return Event::kQuit;
    if (ending != 0) {
      state_->leave();
      state_->giveSignalsBack();
      ::raise(ending);
      return Event::kQuit;  // it is ignored after all
    }
    if (stopping != 0) {
      stopping = 0;
      state_->leave();
      ::raise(SIGSTOP);  // until SIGCONT
      state_->enter();
      return Event::kResized;
    }
    if (resized != 0) {
      resized = 0;
      return Event::kResized;
    }
    if (ready == 0) return Event::kTime;
    if (ready < 0) continue;
    char key = 0;
    const ssize_t got = ::read(STDIN_FILENO, &key, 1);
    if (got <= 0 && (input.revents & (POLLHUP | POLLERR)) != 0) return Event::kQuit;
    if (got == 1 && (key == 'q' || key == 'Q' || key == 3)) return Event::kQuit;
  }
}

std::string fitted(std::string_view text, TopScreen::Size size, std::string_view line_end) {
  std::string out;
  for (size_t line = 0; line + 1 < size.height && !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    out += text.substr(0, std::min(end, size.width));
    out += line_end;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

}  // namespace idetcd::cli
