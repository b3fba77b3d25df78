// Ranks the holders of something shared: the one with most gives way when there is no more. One thread.
#pragma once

#include "base/std.h"

namespace idetcd {

// A list through its elements: T has a ListLink for each list that it may be in. Elements are not owned.
template <typename T>
struct ListLink {
  T* previous = nullptr;
  T* next = nullptr;
};

template <typename T, ListLink<T> T::*kLink>
class LinkedList {
 public:
  bool empty() const { return first_ == nullptr; }
  T* first() const { return first_; }
  T* last() const { return last_; }
  static T* next(const T& element) { return (element.*kLink).next; }
  void append(T& element) {
    element.*kLink = {.previous = last_, .next = nullptr};
    (last_ != nullptr ? (last_->*kLink).next : first_) = &element;
    last_ = &element;
  }
  void remove(T& element) {
    const ListLink<T>& link = element.*kLink;
    (link.previous != nullptr ? (link.previous->*kLink).next : first_) = link.next;
    (link.next != nullptr ? (link.next->*kLink).previous : last_) = link.previous;
    element.*kLink = {};
  }

 private:
  T* first_ = nullptr;
  T* last_ = nullptr;
};

// Whether one that holds `most` gives way to one that holds `few`: with less between them they would change places for ever.
constexpr bool givesWay(size_t most, size_t few) { return most >= few + 2; }

// Holders by the number of what they hold, which changes by one at a time: all operations take constant time.
template <typename T, size_t T::*kHeld, ListLink<T> T::*kLink>
class Ranking {
 public:
  // The one with most; of several the one that has had so many longest. Null: nobody holds anything.
  T* largest() const { return largest_ > 0 ? ranks_[largest_].first() : nullptr; }
  // The same, if it gives way to one that holds `few`.
  T* toGiveWay(size_t few) const { return givesWay(largest_, few) ? largest() : nullptr; }

  void rise(T& holder) {
    size_t& held = holder.*kHeld;
    if (held > 0) ranks_[held].remove(holder);
    ++held;
    if (ranks_.size() <= held) ranks_.resize(held + 1);
    ranks_[held].append(holder);
    largest_ = std::max(largest_, held);
  }
  // REQUIRES: it holds one.
  void fall(T& holder) {
    size_t& held = holder.*kHeld;
    assert(held > 0);
    ranks_[held].remove(holder);
    if (held == largest_ && ranks_[held].empty()) --largest_;
    --held;
    if (held > 0) ranks_[held].append(holder);
  }

 private:
  std::vector<LinkedList<T, kLink>> ranks_;  // by the number that is held
  size_t largest_ = 0;
};

}  // namespace idetcd
