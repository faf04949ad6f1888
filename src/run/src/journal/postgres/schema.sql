-- The journal of one run: all tables are in a schema of their own, which is the search path.
CREATE TABLE IF NOT EXISTS journal_version (
    version BIGINT NOT NULL,
    -- Number of processes that have opened the journal; a process whose number is older has lost it.
    generation BIGINT NOT NULL);
INSERT INTO journal_version SELECT 1, 0 WHERE NOT EXISTS (SELECT 1 FROM journal_version);

CREATE TABLE IF NOT EXISTS unit (
    stage TEXT COLLATE "C" NOT NULL, item TEXT COLLATE "C" NOT NULL, position BIGINT NOT NULL,
    state TEXT NOT NULL DEFAULT 'pending', attempts BIGINT NOT NULL DEFAULT 0,
    lease_until BIGINT NOT NULL DEFAULT 0, holder TEXT, output TEXT, failure TEXT,
    PRIMARY KEY (stage, item));
-- The last position of a stage is its last entry, so that units are added without a look at all others.
CREATE INDEX IF NOT EXISTS unit_by_position ON unit (stage, position);

CREATE TABLE IF NOT EXISTS call (
    id TEXT COLLATE "C" PRIMARY KEY, state TEXT NOT NULL,
    micro_usd BIGINT NOT NULL, tokens BIGINT NOT NULL, holder TEXT, reply TEXT);

CREATE TABLE IF NOT EXISTS spent (
    calls BIGINT NOT NULL, uncertain BIGINT NOT NULL, micro_usd BIGINT NOT NULL, tokens BIGINT NOT NULL);
INSERT INTO spent SELECT 0, 0, 0, 0 WHERE NOT EXISTS (SELECT 1 FROM spent);

-- Maintains the totals, so that a reservation does not have to sum over all calls.
CREATE OR REPLACE FUNCTION count_call() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        UPDATE spent SET calls = calls + 1, uncertain = uncertain + (NEW.state = 'uncertain')::int,
            micro_usd = micro_usd + NEW.micro_usd, tokens = tokens + NEW.tokens;
    ELSIF TG_OP = 'UPDATE' THEN
        UPDATE spent SET
            uncertain = uncertain + (NEW.state = 'uncertain')::int - (OLD.state = 'uncertain')::int,
            micro_usd = micro_usd + NEW.micro_usd - OLD.micro_usd,
            tokens = tokens + NEW.tokens - OLD.tokens;
    ELSE
        UPDATE spent SET calls = calls - 1, uncertain = uncertain - (OLD.state = 'uncertain')::int,
            micro_usd = micro_usd - OLD.micro_usd, tokens = tokens - OLD.tokens;
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER count_call AFTER INSERT OR UPDATE OR DELETE ON call
    FOR EACH ROW EXECUTE FUNCTION count_call();

CREATE TABLE IF NOT EXISTS event (
    trajectory TEXT COLLATE "C" NOT NULL, position BIGINT NOT NULL, payload TEXT NOT NULL,
    PRIMARY KEY (trajectory, position));

CREATE TABLE IF NOT EXISTS fact (key TEXT COLLATE "C" PRIMARY KEY, value TEXT NOT NULL);

CREATE TABLE IF NOT EXISTS batch (
    number BIGSERIAL, name TEXT COLLATE "C" PRIMARY KEY, teacher TEXT COLLATE "C" NOT NULL, wave BIGINT NOT NULL,
    requests BIGINT NOT NULL, file TEXT, asked BOOLEAN NOT NULL DEFAULT FALSE, remote TEXT,
    closed BOOLEAN NOT NULL DEFAULT FALSE);

CREATE TABLE IF NOT EXISTS noted (
    call TEXT COLLATE "C" PRIMARY KEY, teacher TEXT NOT NULL, batch TEXT, request TEXT NOT NULL, line TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS noted_by_batch ON noted (batch);

-- Units of the round that the coordinator has announced, which workers may lease.
CREATE TABLE IF NOT EXISTS offer (
    stage TEXT COLLATE "C" NOT NULL, item TEXT COLLATE "C" NOT NULL, round TEXT NOT NULL, position BIGINT NOT NULL,
    -- Failures of earlier attempts, as JSON.
    failures TEXT NOT NULL DEFAULT '',
    -- Time before which nobody looks at it (Unix milliseconds): the end of its lease, or of its wait after a failure.
    not_before BIGINT NOT NULL DEFAULT 0,
    -- Attempts whose lease ended without a result.
    lost BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (stage, item));
-- The next unit is the first entry of one of these: neither has the units in work and those that have ended.
DROP INDEX IF EXISTS offer_by_round;
CREATE INDEX IF NOT EXISTS offer_free ON offer (round, stage, position) WHERE not_before = 0;
CREATE INDEX IF NOT EXISTS offer_due ON offer (round, stage, not_before) WHERE not_before > 0;

-- Workers; the process that opened the journal is none. A worker is alive for `seconds` after it was seen.
CREATE TABLE IF NOT EXISTS member (
    holder TEXT COLLATE "C" PRIMARY KEY, about TEXT NOT NULL, seconds BIGINT NOT NULL, seen BIGINT NOT NULL);
CREATE INDEX IF NOT EXISTS call_in_flight ON call (holder) WHERE state = 'in_flight';
