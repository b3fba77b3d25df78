#include "peers/etcd_version.h"

#include "base/text.h"

namespace idetcd::peers {
namespace {

// Known defects of etcd that weaken what idetcd promises, and the version of each branch that has them no more. What
// remains in spite of them is in naming/README.md.
struct Defect {
  std::string_view what;
  std::array<int, 3> fixed;  // the last number of 3.4, 3.5 and 3.6
};
constexpr Defect kDefects[]{
    {"older than any that idetcd was tested with, 3.4.23 and later ones", {23, 0, 0}},
    {"reads of a member that stood still may be old (etcd 20418)", {42, 28, 9}},
    {"a lease that has ended may be renewed (etcd 20813)", {38, 23, 5}},
    {"a leader that stood still goes on with leases (etcd 15247)", {30, 11, 0}},
};

}  // namespace

std::string defectsOf(std::string_view version_text) {
  std::array<int, 3> numbers{};
  std::string_view version = version_text;
  for (int& number : numbers) {
    const size_t dot = std::min(version.find('.'), version.size());
    number = parseNumber<int>(version.substr(0, dot)).value_or(0);
    version.remove_prefix(std::min(dot + 1, version.size()));
  }
  std::string found;
  if (!version_text.empty() && std::pair(numbers[0], numbers[1]) < std::pair(3, 4))
    return "before 3.4 it has no learners: no voter that dies is replaced";
  if (numbers[0] != 3 || numbers[1] < 4 || numbers[1] > 6) return found;
  for (const Defect& defect : kDefects) {
    if (numbers[2] < defect.fixed[static_cast<size_t>(numbers[1] - 4)])
      found += (found.empty() ? "" : "; ") + std::string(defect.what);
  }
  return found;
}

}  // namespace idetcd::peers
