{{ config(materialized="incremental", incremental_strategy="append") }}
select name, delay, current_date() as day from {{ ref("worst") }}
