#include "cli/local_node.h"

#include <filesystem>
#include <grp.h>
#include <iterator>
#include <pwd.h>
#include <sys/stat.h>
#include <thread>

#include "base/text.h"
#include "cli/http_client.h"
#include "cli/text.h"

namespace idetcd::cli {
namespace {

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
  if (response.status == 404 && !said) return failed(nobodyAnswers(target.substr(0, target.find('?'))));
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
