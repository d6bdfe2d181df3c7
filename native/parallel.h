// One level of parallelism: tasks handed out dynamically to a few threads.
//
// OpenMP, although torch brings its own libgomp: torch loads that one with global symbols before
// this module is imported, so the dynamic linker binds our calls to it, and both share one pool of
// threads. Threads of our own compete with torch's, which spin for a while after each of torch's
// parallel regions: a product that alternates with a torch operation took 1.1 ms with two shared
// threads, 2.2 ms with two of our own, and 2.0 ms with one. Without OpenMP (some clang
// installations) threads are started per call, which the work threshold makes affordable.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#ifdef _OPENMP
#include <omp.h>
#else
#include <thread>
#include <vector>
#endif

namespace hoplite {

// Below this many multiply-adds (roughly half a millisecond) a second thread brings little, and on a
// busy machine, where it must first get a core, it costs much.
constexpr int64_t min_parallel_work = int64_t(1) << 22;

inline int useful_threads(int threads, int64_t work) {
    return work < min_parallel_work || threads < 1 ? 1 : threads;
}

// The threads for one call, which it watches: where others keep the cores busy, a second thread comes
// late, and those that meet often then take many times as long as one alone. After a call that took
// longer than one thread would have, the next ones go alone: more and more of them if it goes on.
class Company {
  public:
    Company(int wanted, int64_t work) : threads(allowed(useful_threads(wanted, work))), work_(work) {}
    ~Company() {
        if (threads == 1) return;
        const std::chrono::duration<double> taken = clock::now() - start_;
        const bool late = taken.count() > seconds_alone * double(work_);
        penalty() = late ? std::min<int64_t>(std::max<int64_t>(2 * penalty(), 64), 1 << 14) : 0;
        alone() = int64_t(penalty());
    }
    Company(const Company&) = delete;
    Company& operator=(const Company&) = delete;

    const int threads;

  private:
    using clock = std::chrono::steady_clock;
    static constexpr double seconds_alone = 0.5e-9;  // per unit of work, with something to spare
    static std::atomic<int64_t>& alone() {  // calls that still have to be
        static std::atomic<int64_t> calls{0};
        return calls;
    }
    static std::atomic<int64_t>& penalty() {
        static std::atomic<int64_t> calls{0};
        return calls;
    }
    static int allowed(int useful) {
        if (useful == 1 || alone() <= 0) return useful;
        --alone();
        return 1;
    }
    const int64_t work_;
    const clock::time_point start_ = clock::now();
};

// f(task, worker) for task = 0..tasks-1, worker in [0, threads); f must not throw.
template <class F>
void parallel_for(int64_t tasks, int threads, F&& f) {
    if (threads <= 1 || tasks <= 1) {
        for (int64_t task = 0; task < tasks; ++task) f(task, 0);
        return;
    }
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int64_t task = 0; task < tasks; ++task) f(task, omp_get_thread_num());
#else
    std::atomic<int64_t> next{0};
    auto work = [&](int worker) {
        for (int64_t task; (task = next++) < tasks;) f(task, worker);
    };
    std::vector<std::thread> others;
    for (int worker = 1; worker < threads; ++worker) others.emplace_back(work, worker);
    work(0);
    for (auto& thread : others) thread.join();
#endif
}

// f(worker, workers) once in each of at most `threads` threads, which may wait for one another.
template <class F>
void in_team(int threads, F&& f) {
#ifdef _OPENMP
#pragma omp parallel num_threads(threads)
    f(omp_get_thread_num(), omp_get_num_threads());
#else
    f(0, 1);  // threads of its own have nothing to wait with
#endif
}

// Within in_team: wait until all have come.
inline void meet_team() {
#ifdef _OPENMP
#pragma omp barrier
#endif
}

}  // namespace hoplite
