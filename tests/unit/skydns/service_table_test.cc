#include "skydns/service_table.h"

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace idetcd::skydns {
namespace {

ServicePtr named(const std::string& key, uint16_t priority = 10) {
  auto service = std::make_shared<Service>();
  service->key = key;
  service->priority = priority;
  return service;
}

std::vector<std::string> keysWith(const ServiceTable& table, std::string_view prefix) {
  std::vector<std::string> keys;
  table.visit(prefix, [&](const Service& service) {
    keys.push_back(service.key);
    return true;
  });
  return keys;
}

TEST(ServiceTable, Empty) {
  const ServiceTable table;
  EXPECT_EQ(table.size(), 0u);
  EXPECT_EQ(table.find("/a"), nullptr);
  EXPECT_TRUE(keysWith(table, "/").empty());
  EXPECT_EQ(table.with({{"/a", named("/a")}}, 7).size(), 1u);
  EXPECT_EQ(table.with({{"/a", nullptr}}, 7).size(), 0u);
}

TEST(ServiceTable, APrefixIsARangeOfKeys) {
  const ServiceTable table({named("/a"), named("/a-b"), named("/a/b"), named("/a/b/c"), named("/a0"), named("/b")}, 1);
  EXPECT_EQ(keysWith(table, "/a/"), (std::vector<std::string>{"/a/b", "/a/b/c"}));
  EXPECT_TRUE(keysWith(table, "/c").empty());
  size_t visited = 0;
  table.visit("/a", [&](const Service&) { return ++visited < 2; });
  EXPECT_EQ(visited, 2u) << "until it is told to stop";
}

TEST(ServiceTable, AChangeLeavesTheFormerTableAsItWas) {
  const ServiceTable before({named("/a"), named("/b")}, 1);
  const ServiceTable after = before.with({{"/a", nullptr}, {"/b", named("/b", 20)}, {"/c", named("/c")}}, 2);
  EXPECT_EQ(keysWith(before, "/"), (std::vector<std::string>{"/a", "/b"}));
  EXPECT_EQ(before.find("/b")->priority, 10);
  EXPECT_EQ(keysWith(after, "/"), (std::vector<std::string>{"/b", "/c"}));
  EXPECT_EQ(after.find("/b")->priority, 20);
  EXPECT_EQ(before.serial(), 1u);
  EXPECT_EQ(after.serial(), 2u);
}

// Against a map, in which the same changes are made.
TEST(ServiceTable, ManyChanges) {
  std::mt19937 random(27);  // NOLINT(bugprone-random-generator-seed): the same changes in each run
  const auto any = [&](size_t below) { return random() % below; };
  std::map<std::string, uint16_t> expected;
  ServiceTable table;
  for (int round = 0; round < 300; ++round) {
    std::map<std::string, ServicePtr> changes;
    for (size_t left = any(40); left > 0; --left) {
      const std::string key = "/" + std::to_string(any(4000));
      changes[key] = any(3) == 0 ? nullptr : named(key, static_cast<uint16_t>(any(1000)));
    }
    std::vector<ServiceTable::Change> list;
    for (const auto& [key, service] : changes) {
      list.push_back({key, service});
      if (service) {
        expected[key] = service->priority;
      } else {
        expected.erase(key);
      }
    }
    table = table.with(std::move(list), 1);
    ASSERT_EQ(table.size(), expected.size());
  }
  std::map<std::string, uint16_t> held;
  std::string last;
  table.visit("/", [&](const Service& service) {
    EXPECT_LT(last, service.key);
    last = service.key;
    held[service.key] = service.priority;
    return true;
  });
  EXPECT_EQ(held, expected);
  for (const auto& [key, priority] : expected) {
    ASSERT_NE(table.find(key), nullptr) << key;
    ASSERT_EQ(table.find(key)->priority, priority) << key;
  }
  EXPECT_EQ(table.find("/4001"), nullptr);
}

TEST(ServiceSet, ShowsTheNewestTable) {
  ServiceSet set(std::make_shared<Executor>());
  EXPECT_EQ(set.table(), nullptr);
  const uint64_t before = set.generation();
  set.publish(ServiceTable({named("/a")}, 1));
  EXPECT_NE(set.generation(), before);
  EXPECT_EQ(set.table()->size(), 1u);
}

}  // namespace
}  // namespace idetcd::skydns
