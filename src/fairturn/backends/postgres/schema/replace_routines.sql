-- Replace the installed functions by those of this version. `migrate` runs this in one transaction.

-- A function may call functions that are created after it.
SET check_function_bodies = off;

-- CREATE OR REPLACE keeps grants, but cannot change arguments or results: a function whose signature has changed is
-- dropped first. One that is not in the files any more is only retired, because running calls still need it. The
-- next replacement drops it.
DO $before$
DECLARE
  v_new CONSTANT jsonb := $signatures$:signatures$signatures$;
  r record;
BEGIN
  FOR r IN SELECT o.name, p.oid::regprocedure AS function, p.proacl AS grants
      FROM fairturn.routine o
      JOIN pg_catalog.pg_proc p ON p.proname = o.name::name AND p.pronamespace = 'fairturn'::regnamespace
      WHERE CASE WHEN v_new ? o.name THEN o.signature <> v_new ->> o.name ELSE o.retired END LOOP
    UPDATE fairturn.routine SET grants = r.grants::text WHERE name = r.name;
    EXECUTE format('DROP FUNCTION %s', r.function);
  END LOOP;
  DELETE FROM fairturn.routine WHERE retired AND NOT v_new ? name;
  UPDATE fairturn.routine SET retired = NOT v_new ? name;
  INSERT INTO fairturn.routine (name, signature) SELECT n.key, n.value FROM jsonb_each_text(v_new) n
    ON CONFLICT (name) DO UPDATE SET signature = excluded.signature;
END $before$;

-- :routines

-- A function that was dropped and created again gets its former grants.
DO $after$
DECLARE
  r record;
  g record;
BEGIN
  FOR r IN SELECT p.oid::regprocedure AS function, p.proowner AS owner, o.grants::aclitem[] AS grants
      FROM fairturn.routine o
      JOIN pg_catalog.pg_proc p ON p.proname = o.name::name AND p.pronamespace = 'fairturn'::regnamespace
      WHERE o.grants IS NOT NULL LOOP
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', r.function);
    FOR g IN SELECT a.grantee, a.is_grantable FROM aclexplode(r.grants) a WHERE a.grantee <> r.owner LOOP
      EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s%s', r.function,
        CASE WHEN g.grantee = 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END,
        CASE WHEN g.is_grantable THEN ' WITH GRANT OPTION' END);
    END LOOP;
  END LOOP;
  UPDATE fairturn.routine SET grants = NULL WHERE grants IS NOT NULL;
END $after$;

RESET check_function_bodies;

INSERT INTO fairturn.installed (generation, oldest_client, routines) VALUES (:generation, :oldest_client, ':hash')
  ON CONFLICT (one) DO UPDATE SET generation = excluded.generation, oldest_client = excluded.oldest_client,
    routines = excluded.routines;
