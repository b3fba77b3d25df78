// Runs a fuzz target without libFuzzer: every seed, then mutations of the seeds. The same arguments give the same
// inputs in the same order, so a failure comes again; the input that failed is printed in hexadecimal.
//
//   <target>_fuzz [-runs=N] [-max_total_time=SECONDS] [-seed=N] [-input=HEX] [FILE | FOLDER]…
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
// Of the sanitizers, where there is one.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace {

using Input = std::vector<uint8_t>;

struct Options {
  uint64_t runs = 300000;
  std::chrono::duration<double> max_time{2};
  unsigned seed = 1;
  std::vector<Input> inputs;
};

// What the handlers of fatal signals print: no other code can know it.
const uint8_t* current_data = nullptr;
size_t current_size = 0;

void printCurrentInput() {
  const auto print = [](const char* text, size_t size) {
    while (size > 0) {
      const ssize_t written = write(STDERR_FILENO, text, size);
      if (written <= 0) return;
      text += written;
      size -= static_cast<size_t>(written);
    }
  };
  constexpr char kDigits[] = "0123456789abcdef";
  print("-input=", 7);
  for (size_t i = 0; i < current_size; ++i) {
    const char byte[2] = {kDigits[current_data[i] >> 4], kDigits[current_data[i] & 15]};
    print(byte, 2);
  }
  print("\n", 1);
}

void onFatalSignal(int signal) {
  printCurrentInput();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void run(const Input& input) {
  // Its own block of exactly this size, so that AddressSanitizer guards the end.
  const auto copy = std::make_unique<uint8_t[]>(input.size());
  std::copy(input.begin(), input.end(), copy.get());
  current_data = copy.get();
  current_size = input.size();
  LLVMFuzzerTestOneInput(copy.get(), input.size());
  current_size = 0;
}

class Mutator {
 public:
  Mutator(const std::vector<Input>& corpus, unsigned seed) : corpus_(corpus), random_(seed) {}

  Input next() {
    Input input = corpus_[below(corpus_.size())];
    for (size_t changes = 1 + below(6); changes > 0; --changes) change(input);
    if (input.size() > kMaxSize) input.resize(kMaxSize);
    return input;
  }

 private:
  static constexpr size_t kMaxSize = 65535;

  size_t below(size_t bound) { return bound == 0 ? 0 : random_() % bound; }
  uint8_t interestingByte() {
    constexpr uint8_t kBytes[] = {0,    1,    2,    0x0c, 0x20, 0x29, 0x2e, 0x3f,
                                  0x40, 0x41, 0x5c, 0x7f, 0x80, 0xc0, 0xfa, 0xff};
    return kBytes[below(std::size(kBytes))];
  }

  void change(Input& input) {
    const size_t at = below(input.size() + 1);
    const auto place = input.begin() + static_cast<std::ptrdiff_t>(at);
    switch (below(8)) {
      case 0:  // flip a bit
        if (at < input.size()) *place = static_cast<uint8_t>(*place ^ 1u << below(8));
        break;
      case 1:
        if (at < input.size()) *place = interestingByte();
        break;
      case 2:
        if (at < input.size()) *place = static_cast<uint8_t>(random_());
        break;
      case 3:  // a number a little larger or smaller
        if (at < input.size()) *place = static_cast<uint8_t>(*place + below(9) - 4);
        break;
      case 4:
        input.insert(place, 1 + below(8), interestingByte());
        break;
      case 5:
        input.erase(place, place + static_cast<std::ptrdiff_t>(below(std::min<size_t>(16, input.size() - at) + 1)));
        break;
      case 6:  // cut off
        input.resize(at);
        break;
      default: {  // a piece of some seed, put in
        const Input& other = corpus_[below(corpus_.size())];
        const size_t from = below(other.size() + 1);
        const size_t size = below(std::min<size_t>(64, other.size() - from) + 1);
        const auto begin = other.begin() + static_cast<std::ptrdiff_t>(from);
        input.insert(place, begin, begin + static_cast<std::ptrdiff_t>(size));
      }
    }
  }

  const std::vector<Input>& corpus_;
  std::mt19937 random_;
};

Input readFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "%s: cannot be read\n", path.c_str());
    std::exit(2);
  }
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void readSeeds(const std::filesystem::path& path, std::vector<Input>& inputs) {
  if (!std::filesystem::is_directory(path)) {
    inputs.push_back(readFile(path));
    return;
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());  // the same order everywhere
  for (const auto& file : files) inputs.push_back(readFile(file));
}

Input fromHex(std::string_view digits) {
  Input input;
  for (; digits.size() >= 2; digits.remove_prefix(2)) {
    input.push_back(static_cast<uint8_t>(std::strtoul(std::string(digits.substr(0, 2)).c_str(), nullptr, 16)));
  }
  return input;
}

Options parseArguments(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const std::string value(argument.substr(std::min(argument.find('='), argument.size() - 1) + 1));
    if (argument.starts_with("-runs=")) {
      options.runs = std::strtoull(value.c_str(), nullptr, 10);
    } else if (argument.starts_with("-max_total_time=")) {
      options.max_time = std::chrono::duration<double>(std::strtod(value.c_str(), nullptr));
    } else if (argument.starts_with("-seed=")) {
      options.seed = static_cast<unsigned>(std::strtoul(value.c_str(), nullptr, 10));
    } else if (argument.starts_with("-input=")) {
      options.inputs.push_back(fromHex(value));
    } else if (argument.starts_with("-")) {
      std::fprintf(stderr, "%s: unknown option\n", argv[i]);
      std::exit(2);
    } else {
      readSeeds(argv[i], options.inputs);
    }
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parseArguments(argc, argv);
  if (options.inputs.empty()) {
    std::fprintf(stderr, "usage: %s [-runs=N] [-max_total_time=SECONDS] [-seed=N] [-input=HEX] [FILE | FOLDER]...\n",
                 argv[0]);
    return 2;
  }
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(printCurrentInput);
  std::signal(SIGABRT, onFatalSignal);
  if (__sanitizer_set_death_callback == nullptr) std::signal(SIGSEGV, onFatalSignal);

  for (const Input& input : options.inputs) run(input);
  Mutator mutator(options.inputs, options.seed);
  const auto end = std::chrono::steady_clock::now() + options.max_time;
  uint64_t runs = 0;
  for (; runs < options.runs && std::chrono::steady_clock::now() < end; ++runs) run(mutator.next());
  std::printf("%zu seeds and %llu mutations passed\n", options.inputs.size(), static_cast<unsigned long long>(runs));
  return 0;
}
