-- Why: the queue stands in apalis's tables (applied before this by its own migrations), but is woken,
-- fetched and recovered by Onehold. What the tables bring that costs and is not used goes.
-- Previous release: none; this is the first.

-- apalis notifies once per row, inside the transaction: commits that notify queue behind one lock.
-- Onehold notifies once per burst, after the commit, and polls besides.
drop trigger if exists notify_workers on apalis.jobs;

-- Duplicates of other indexes.
drop index if exists apalis.unique_job_id, apalis.lidx, apalis.wtidx, apalis.lsidx;

-- The reference from a job to its worker costs a lock on one and the same worker's row for every job
-- that starts, and keeps a worker's row for as long as its finished jobs. A worker whose row is missing
-- is a dead one: recovery says so itself.
alter table apalis.jobs drop constraint if exists fk_worker_lock_by;
alter table apalis.workers drop constraint if exists unique_worker_id;
drop index if exists apalis.unique_worker_id, apalis.idx_apalis_jobs_lock_by;

-- What may start. Without a priority in front of the time, so that a look at what became due lately is
-- one short range, and does not walk over the dead entries of a million finished jobs that a long-open
-- transaction elsewhere keeps from being removed. The order is the time alone; priorities are not used.
drop index if exists apalis.idx_apalis_jobs_fetch_partial;
create index jobs_due on apalis.jobs (job_type, run_at)
    where status = 'Pending' or (status = 'Failed' and attempts < max_attempts);

-- What runs where: how the jobs of a dead worker are found among a million finished ones.
create index jobs_in_hand on apalis.jobs (lock_by) where status in ('Queued', 'Running');

-- What has ended, oldest first: how pruning finds it.
create index jobs_ended on apalis.jobs (done_at) where status in ('Done', 'Killed');

-- Rows are rewritten twice in their life and then pruned: vacuum early.
alter table apalis.jobs set (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);

-- Puts a job into a queue, in the caller's transaction. One key is one job: while such a job waits or
-- runs it serves, and one that has ended is run again from its first attempt, unless p_again is false.
-- Takes the queue's name, the key, the payload (an object with a version "v"), the most attempts, and
-- how long to wait. Gives whether a job was put in.
create function onehold.enqueue_job(
    p_queue text, p_key text, p_payload jsonb, p_max_attempts int, p_delay interval default '0',
    p_again boolean default true
) returns boolean
language sql volatile as $$
    with put as (
        insert into apalis.jobs as j
            (id, job_type, job, status, attempts, max_attempts, run_at, priority, idempotency_key)
        values
            (apalis.generate_ulid(), p_queue, convert_to(p_payload::text, 'UTF8'), 'Pending', 0,
             p_max_attempts, clock_timestamp() + p_delay, 0, p_key)
        on conflict (job_type, idempotency_key) do update
            set status = 'Pending', attempts = 0, job = excluded.job, max_attempts = excluded.max_attempts,
                run_at = excluded.run_at, lock_by = null, lock_at = null, done_at = null, last_result = null
            where p_again and j.status in ('Done', 'Killed')
        returning 1
    )
    select exists (select from put)
$$;
