#include "cli/local_node.h"

#include <filesystem>
#include <grp.h>
#include <iterator>
#include <poll.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <thread>

#include "base/file_descriptor.h"
#include "base/text.h"

namespace idetcd::cli {

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

tl::unexpected<HttpError> broken(std::string message, int error = 0) {
  return tl::unexpected<HttpError>(HttpError{.message = std::move(message), .error = error});
}

tl::unexpected<HttpError> late() { return broken("the server does not answer in time"); }

// False: the time is over.
bool waitFor(int fd, int16_t events, Clock::time_point end) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    if (left <= 0ms) return false;
    pollfd one{fd, events, 0};
    const int ready = ::poll(&one, 1, static_cast<int>(std::min<int64_t>(left.count(), 60'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

tl::expected<FileDescriptor, HttpError> connectTo(const std::string& path, Clock::time_point end) {
  sockaddr_un address{};
  if (path.size() >= sizeof address.sun_path) return broken("the path is too long for a Unix socket", ENAMETOOLONG);
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.isOpen()) return broken(std::strerror(errno), errno);
  const auto* any = reinterpret_cast<const sockaddr*>(&address);  // NOLINT: as the interface is
  while (::connect(socket.get(), any, sizeof address) != 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return broken(std::strerror(errno), errno);  // EAGAIN: its backlog is full
    if (Clock::now() >= end) return late();
    std::this_thread::sleep_for(10ms);
  }
  return socket;
}

tl::expected<void, HttpError> sendAll(int fd, std::string_view bytes, Clock::time_point end) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      if (!waitFor(fd, POLLOUT, end)) return late();
    } else if (errno != EINTR) {
      return broken(std::strerror(errno));
    }
  }
  return {};
}

tl::expected<HttpResponse, HttpError> receive(int fd, Clock::time_point end) {
  ResponseReader reader;
  std::array<char, 16384> bytes;
  while (true) {
    if (!waitFor(fd, POLLIN, end)) return late();
    const ssize_t size = ::recv(fd, bytes.data(), bytes.size(), 0);
    if (size < 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      return broken(std::strerror(errno));
    }
    const auto progress = size == 0 ? reader.end() : reader.read({bytes.data(), static_cast<size_t>(size)});
    if (progress == ResponseReader::Progress::kComplete) return reader.take();
    if (progress == ResponseReader::Progress::kMalformed || size == 0)
      return broken("the answer of the server is not whole");
  }
}

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kStart{5000};
constexpr std::chrono::milliseconds kStartPause{20};

std::string groupOf(const std::string& path) {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) return "its group";
  const group* found = ::getgrgid(file.st_gid);  // NOLINT(concurrency-mt-unsafe): one thread
  return found == nullptr ? fmt::format("group {}", file.st_gid) : fmt::format("the group {}", found->gr_name);
}

tl::unexpected<Failure> notAllowed(const std::string& path) {
  return failed(
      fmt::format("permission denied for {}: ask root (sudo), or to be put into {}", escaped(path), groupOf(path)));
}

// No directive of the server has registered the path.
std::string nobodyAnswers(std::string_view path) {
  constexpr std::array<std::string_view, 5> kOfClusters{"/v1/members", "/v1/slot", "/v1/release", "/v1/drain",
                                                        "/v1/undrain"};
  if (std::find(kOfClusters.begin(), kOfClusters.end(), path) != kOfClusters.end()) return std::string(kNoCluster);
  return fmt::format("no directive of the server answers {}", path);
}

Reply<nlohmann::json> judge(const HttpResponse& response, std::string_view target) {
  auto body = parseJson(response.body);
  if (response.status == 200 && body.is_object()) return body;
  if (response.status < 400) return failed("the server answers with what is no JSON object");
  const auto said = textAt(body, "error");
  if (response.status == 404 && !said) {
    return tl::unexpected<Failure>(
        Failure{.message = nobodyAnswers(target.substr(0, target.find('?'))), .status = response.status});
  }
  const bool is_no = response.status == 404 || response.status == 409;
  return tl::unexpected<Failure>(
      Failure{.message = said ? escaped(*said) : fmt::format("the server answers with status {}", response.status),
              .code = is_no && said ? kNo : kFailed,
              .may_pass = response.status >= 500,
              .status = response.status});
}

tl::unexpected<Failure> unreachable(const std::string& path, const HttpError& error) {
  if (error.error == EACCES || error.error == EPERM) return notAllowed(path);
  if (error.error == ENOENT || error.error == ECONNREFUSED)
    return notYet(fmt::format("nobody listens at {}: does idetcd run?", escaped(path)), kFailed);
  return tl::unexpected<Failure>(Failure{
      .message = fmt::format("{} ({})", error.message, escaped(path)), .code = kFailed, .may_pass = error.error == 0});
}

// A server that starts listens a moment before it has a configuration, and says so without JSON.
bool isStarting(const HttpResponse& response) { return response.status == 503 && !response.body.starts_with('{'); }

Reply<nlohmann::json> request(const LocalNode& node, Method method, std::string_view target,
                              std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + std::min<std::chrono::milliseconds>(patience, kStart);
  while (true) {
    const auto path = node.socketPath();
    if (!path) return tl::unexpected(path.error());
    const auto response = ask(*path, method, target, patience);
    if (!response) return unreachable(*path, response.error());
    if (!isStarting(*response)) return judge(*response, target);
    if (std::chrono::steady_clock::now() >= end)
      return notYet(fmt::format("the server at {} is still starting", escaped(*path)), kFailed);
    std::this_thread::sleep_for(kStartPause);
  }
}

}  // namespace

bool isListenedAt(const std::string& socket_path) {
  const auto connected = connectTo(socket_path, Clock::now());  // a full backlog is somebody's
  return connected || (connected.error().error != ECONNREFUSED && connected.error().error != ENOENT);
}

tl::expected<HttpResponse, HttpError> ask(const std::string& socket_path, Method method, std::string_view target,
                                          std::chrono::milliseconds patience) {
  const Clock::time_point end = Clock::now() + patience;
  auto socket = connectTo(socket_path, end);
  if (!socket) return tl::unexpected(socket.error());
  const bool is_post = method == Method::kPost;
  const std::string request =
      fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\nConnection: close\r\n{}\r\n",
                  is_post ? "POST" : "GET", target, is_post ? "Content-Length: 0\r\n" : "");
  if (auto sent = sendAll(socket->get(), request, end); !sent) return tl::unexpected(sent.error());
  return receive(socket->get(), end);
}

ResponseReader::Progress ResponseReader::read(std::string_view bytes) {
  if (has_head_) {
    response_.body += bytes;
  } else {
    head_ += bytes;
    if (head_.find("\r\n\r\n") == std::string::npos)
      return head_.size() > kMaxHead ? Progress::kMalformed : Progress::kIncomplete;
    if (const Progress progress = readHead(); progress != Progress::kComplete) return progress;
  }
  if (response_.body.size() > kMaxBody) return Progress::kMalformed;
  if (!has_length_ || response_.body.size() < length_) return Progress::kIncomplete;
  response_.body.resize(length_);
  return Progress::kComplete;
}

ResponseReader::Progress ResponseReader::end() {
  return has_head_ && !has_length_ ? Progress::kComplete : Progress::kMalformed;
}

ResponseReader::Progress ResponseReader::readHead() {
  const size_t end = head_.find("\r\n\r\n");
  response_.body = head_.substr(end + 4);
  std::string_view lines = std::string_view(head_).substr(0, end + 2);
  const std::string_view first = lines.substr(0, lines.find("\r\n"));
  if (!first.starts_with("HTTP/1.") || first.size() < 12) return Progress::kMalformed;
  const auto status = parseNumber<uint16_t>(first.substr(9, 3));
  if (!status || *status < 200 || *status > 599) return Progress::kMalformed;
  response_.status = *status;
  while (!lines.empty()) {
    const size_t stop = lines.find("\r\n");
    const std::string_view line = lines.substr(0, stop);
    lines.remove_prefix(stop + 2);
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string name = lowerCase(line.substr(0, colon));
    std::string_view value = line.substr(colon + 1);
    value.remove_prefix(std::min(value.find_first_not_of(" \t"), value.size()));
    value = value.substr(0, value.find_last_not_of(" \t") + 1);
    if (name == "transfer-encoding") return Progress::kMalformed;
    if (name != "content-length") continue;
    const auto length = parseNumber<uint64_t>(value);
    if (!length || *length > kMaxBody) return Progress::kMalformed;
    has_length_ = true;
    length_ = *length;
  }
  has_head_ = true;
  return Progress::kComplete;
}

std::string percentEncoded(std::string_view text) {
  std::string encoded;
  for (const char c : text) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (is_letter || isDigit(c) || c == '-' || c == '.' || c == '_' || c == '~') {
      encoded += c;
    } else {
      encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

Reply<nlohmann::json> LocalNode::get(std::string_view target, std::chrono::milliseconds patience) const {
  return request(*this, Method::kGet, target, patience);
}

Reply<nlohmann::json> LocalNode::post(std::string_view target, std::chrono::milliseconds patience) const {
  return request(*this, Method::kPost, target, patience);
}

Reply<std::string> LocalNode::socketPath() const {
  if (socket_) return *socket_;
  std::error_code error;
  std::vector<std::string> found;
  for (fs::directory_iterator each(directory_, error), end; !error && each != end; each.increment(error)) {
    std::error_code unknown;
    if (each->path().extension() == ".sock" && each->is_socket(unknown)) found.push_back(each->path().string());
  }
  if (error == std::errc::permission_denied) return notAllowed(directory_);
  if (found.empty())
    return notYet(fmt::format("there is no socket in {}: does idetcd run? (--socket says where else)", directory_),
                  kFailed);
  std::sort(found.begin(), found.end());
  if (found.size() == 1) return found.front();
  std::vector<std::string> living;
  std::copy_if(found.begin(), found.end(), std::back_inserter(living), isListenedAt);
  if (living.size() == 1) return living.front();
  if (living.empty())
    return notYet(
        fmt::format("nobody listens at {}: does idetcd run?", escaped(fmt::format("{}", fmt::join(found, " or ")))),
        kFailed);
  return failed(fmt::format("there are several servers: choose one with --socket: {}",
                            escaped(fmt::format("{}", fmt::join(living, " ")))));
}

Reply<uint16_t> LocalNode::port() const {
  const auto path = socketPath();
  if (!path) return tl::unexpected(path.error());
  const auto port = parseNumber<uint16_t>(fs::path(*path).stem().string());
  if (!port || *port == 0)
    return failed(
        fmt::format("{} says not at which port the server answers: its name must be PORT.sock", escaped(*path)));
  return *port;
}

}  // namespace idetcd::cli
