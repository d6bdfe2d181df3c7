// Threads: a small pool that all calls share, and the two ways to hand out work to it.
//
// Nothing here waits for a helper that has not come yet. The caller works through its tasks, and
// helpers take some of them if they find a core in time. A call can only wait for a helper that
// lost its core in the middle of a task; then it does the rest alone.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

namespace hoplite {

// Below this many multiply-adds (about a tenth of a millisecond) a second thread brings little.
constexpr int64_t min_parallel_work = int64_t(1) << 20;

inline int useful_threads(int threads, int64_t work) {
    return work < min_parallel_work || threads < 1 ? 1 : threads;
}

// The threads for one call of so many multiply-adds: those that were asked for, or 1. Where other
// processes keep the cores busy, help comes late, and rows that wander between cores make a call
// slower than it is alone. So each thread remembers how long calls of a size took both ways, and
// takes the faster one, but for a try now and then.
class Team {
  public:
    Team(int wanted, int64_t work);
    ~Team();
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

  private:
    int64_t work_;
    int wanted_;
    std::chrono::steady_clock::time_point begin_;

  public:
    int threads;
};

// f(context, worker) in this thread, worker 0, and in up to threads - 1 helpers, workers 1, 2, ...;
// returns when all that have begun are done. Alone if another call has the pool.
void in_team(int threads, void (*f)(void* context, int worker), void* context);

// Waits until the counter is at least `target`: spins, then yields the core. False if that took so
// long that another thread must have lost its core.
bool wait_for(const std::atomic<int64_t>& counter, int64_t target);

// The number of the core that this thread runs on, or -1 if it is not known.
int this_core();
inline bool on_core(int core) { return core >= 0 && this_core() == core; }

template <class F>
void in_team(int threads, F& f) {
    in_team(
        threads, [](void* context, int worker) { (*static_cast<F*>(context))(worker); }, &f);
}

// f(task, worker) for task = 0..tasks-1 in any order, worker in [0, threads); f must not throw.
template <class F>
void parallel_for(int64_t tasks, int threads, F&& f) {
    if (threads <= 1 || tasks <= 1) {
        for (int64_t task = 0; task < tasks; ++task) f(task, 0);
        return;
    }
    std::atomic<int64_t> next{0};
    auto work = [&](int worker) {
        for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;)
            f(task, worker);
    };
    in_team(int(tasks < threads ? tasks : threads), work);
}

// f(stage, part) for part = 0..parts-1 of stage 0, then of stage 1, ...; f must not throw. All
// parts of a stage are done before one of the next begins. A worker takes its own share of the
// parts first, the same in every stage, since their rows are in its cache, and then what is left.
template <class F>
void in_stages(int64_t stages, int64_t parts, int threads, F&& f) {
    if (threads <= 1 || parts <= 1) {
        for (int64_t stage = 0; stage < stages; ++stage)
            for (int64_t part = 0; part < parts; ++part) f(stage, part);
        return;
    }
    const int64_t shares = threads < parts ? threads : parts;
    struct alignas(64) Counter {
        std::atomic<int64_t> count{0};
    };
    std::vector<Counter> taken(stages * shares), done(stages);
    std::atomic<bool> alone{false};         // helpers are to leave
    std::atomic<int> caller{this_core()};   // where they would be in the way
    auto work = [&](int worker) {
        for (int64_t stage = 0; stage < stages; ++stage) {
            if (worker == 0)
                caller.store(this_core(), std::memory_order_relaxed);
            else if (alone.load(std::memory_order_relaxed) ||
                     on_core(caller.load(std::memory_order_relaxed)))
                return;
            int64_t finished = 0;
            for (int64_t i = 0; i < shares; ++i) {
                const int64_t share = (worker + i) % shares;
                const int64_t first = parts * share / shares;
                const int64_t count = parts * (share + 1) / shares - first;
                std::atomic<int64_t>& next = taken[stage * shares + share].count;
                while (next.load(std::memory_order_relaxed) < count) {
                    const int64_t part = next.fetch_add(1, std::memory_order_relaxed);
                    if (part >= count) break;
                    f(stage, first + part);
                    ++finished;
                }
            }
            std::atomic<int64_t>& all = done[stage].count;
            if (finished > 0) all.fetch_add(finished, std::memory_order_acq_rel);
            if (!wait_for(all, parts) && worker == 0) alone.store(true, std::memory_order_relaxed);
        }
    };
    in_team(int(shares), work);
}

}  // namespace hoplite
