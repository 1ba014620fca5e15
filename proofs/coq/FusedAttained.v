(* Theorem (d), second part: executions that attain the fused bound.

   FlashAttention-2 with one key at a time (FusedWitness.v) is valid, complete and
   normalised, and moves exactly

     nq (d + dv) + nq s + ceil(nq / br) nk (d + dv)

   words, where s = 0 when scores and statistics are free, and s = 1 when they are
   words like the others (the log-sum-exp is written).  With s = 1 and dv = d this
   is exactly the traffic of the flash2 schedule of Traffic.v, and under the causal
   mask that of CausalTraffic.v.

   Hypotheses: 0 < br, and br (d + dv + 2 s) + d + dv + s <= M, which for s = 0 is
   (br + 1)(d + dv) <= M.  So with M = (br + 1)(d + dv) the leading term is that of
   the lower bound: 4 nq nk d^2 / M for dv = d.  Source: derived here. *)
From Coq Require Import Arith Lia List.
From iosim Require Import Tiles Lists Traffic CausalTraffic Machine AttentionModel FusedWitness.
Import ListNotations.

(* Without a mask every block visits every key. *)
Lemma witness_all softmax d dv nq nk br M :
  0 < br -> br * (d + dv + 2 * extra softmax) + (d + dv) + extra softmax <= M ->
  exists es : list (event (attention true softmax softmax d dv (all_pairs nq nk))),
    valid M (init _) es /\
    complete true softmax softmax d dv (all_pairs nq nk) (run (init _) es) /\
    finished true softmax softmax d dv (all_pairs nq nk) nq (run (init _) es) /\
    traffic es = nq * (d + dv) + nq * extra softmax + cdiv nq br * (nk * (d + dv)).
Proof.
  intros Hb HM. set (keys := fun _ : list nat => seq 0 nk).
  exists (witness softmax d dv nq br (all_pairs nq nk) keys).
  destruct (witness_correct softmax d dv nq br (all_pairs nq nk) keys M Hb HM) as (V & C & F).
  - intros i j H. apply in_prod_iff in H as [H _]. apply in_seq in H. lia.
  - intros b i j _ _ H. now apply in_prod_iff in H as [_ H].
  - split; [ exact V | split; [ exact C | split; [ exact F | ] ] ].
    rewrite witness_traffic by exact Hb. unfold keys.
    rewrite (sum_ext _ _ (fun _ => nk)) by (intros; apply seq_length). rewrite sum_const. lia.
Qed.

(* Under the causal mask a block visits the keys up to those of its last row. *)
Lemma witness_causal softmax d dv nq nk br M :
  0 < br -> br * (d + dv + 2 * extra softmax) + (d + dv) + extra softmax <= M ->
  exists es : list (event (attention true softmax softmax d dv (causal_pairs nq nk))),
    valid M (init _) es /\
    complete true softmax softmax d dv (causal_pairs nq nk) (run (init _) es) /\
    finished true softmax softmax d dv (causal_pairs nq nk) nq (run (init _) es) /\
    traffic es = nq * (d + dv) + nq * extra softmax
      + sum (cdiv nq br) (keys_seen nq nk br) * (d + dv).
Proof.
  intros Hb HM. set (keys := fun rs => seq 0 (S (list_max rs) + (nk - nq))).
  assert (E : forall b, b < cdiv nq br -> S (list_max (tile nq br b)) = Nat.min nq ((b + 1) * br)).
  { intros b Hb'. pose proof (cdiv_upper nq br Hb) as U.
    assert ((b + 1) * br <= cdiv nq br * br) by (apply Nat.mul_le_mono_r; lia).
    assert (L : list_max (tile nq br b) <= Nat.min nq ((b + 1) * br) - 1).
    { apply list_max_le, Forall_forall. intros r Hr. apply in_tile in Hr. lia. }
    assert (G : Nat.min nq ((b + 1) * br) - 1 <= list_max (tile nq br b)).
    { assert (Hin : In (Nat.min nq ((b + 1) * br) - 1) (tile nq br b)) by (apply in_tile; lia).
      apply (proj1 (Forall_forall _ _) (proj1 (list_max_le _ _) (le_n _)) _ Hin). }
    lia. }
  exists (witness softmax d dv nq br (causal_pairs nq nk) keys).
  destruct (witness_correct softmax d dv nq br (causal_pairs nq nk) keys M Hb HM) as (V & C & F).
  - intros i j H. now apply in_causal_pairs in H as [H _].
  - intros b i j Hb' Hi H. apply in_causal_pairs in H as [_ H].
    unfold keys. rewrite E by exact Hb'. apply in_tile in Hi. apply in_seq. lia.
  - split; [ exact V | split; [ exact C | split; [ exact F | ] ] ].
    rewrite witness_traffic by exact Hb. f_equal. f_equal. apply sum_ext. intros b Hb'.
    unfold keys, keys_seen. now rewrite seq_length, E.
Qed.

(* Scores and statistics free: the execution meets the bound's own model. *)
Theorem fused_attained d dv nq nk br M :
  0 < br -> (br + 1) * (d + dv) <= M ->
  exists es : list (event (attention true false false d dv (all_pairs nq nk))),
    valid M (init _) es /\
    complete true false false d dv (all_pairs nq nk) (run (init _) es) /\
    traffic es = nq * (d + dv) + cdiv nq br * (nk * (d + dv)).
Proof.
  intros Hb HM. destruct (witness_all false d dv nq nk br M Hb) as (es & V & C & _ & T).
  - cbn. lia.
  - exists es. cbn [extra] in T. split; [ exact V | split; [ exact C | lia ] ].
Qed.

(* Scores and statistics in fast memory too: exactly the traffic of flash2. *)
Theorem flash2_attained d nq nk br bc M :
  0 < br -> 0 < bc -> br * (2 * d + 2) + 2 * d + 1 <= M ->
  exists es : list (event (attention true true true d d (all_pairs nq nk))),
    valid M (init _) es /\
    complete true true true d d (all_pairs nq nk) (run (init _) es) /\
    finished true true true d d (all_pairs nq nk) nq (run (init _) es) /\
    traffic es = Traffic.traffic (flash2 nq nk d br bc).
Proof.
  intros Hb Hc HM. destruct (witness_all true d d nq nk br M Hb) as (es & V & C & F & T).
  - cbn. lia.
  - exists es. split; [ exact V | split; [ exact C | split; [ exact F | ] ] ].
    rewrite T, flash2_traffic by assumption. cbn. lia.
Qed.

Theorem flash2_causal_attained d nq nk br M :
  0 < br -> nq <= nk -> br * (2 * d + 2) + 2 * d + 1 <= M ->
  exists es : list (event (attention true true true d d (causal_pairs nq nk))),
    valid M (init _) es /\
    complete true true true d d (causal_pairs nq nk) (run (init _) es) /\
    finished true true true d d (causal_pairs nq nk) nq (run (init _) es) /\
    traffic es = Traffic.traffic (flash2_causal nq nk d br 1).
Proof.
  intros Hb Hn HM. destruct (witness_causal true d d nq nk br M Hb) as (es & V & C & F & T).
  - cbn. lia.
  - exists es. split; [ exact V | split; [ exact C | split; [ exact F | ] ] ].
    rewrite T, flash2_causal_traffic by assumption.
    rewrite (sum_ext _ (fun i => Nat.min nk _) (keys_seen nq nk br)).
    + cbn. lia.
    + intros i _. unfold visited. rewrite cdiv_one. unfold keys_seen. lia.
Qed.

(* The model on a small instance: two queries, two keys, d = dv = 1, M = 4.  Ten words
   are enough (exhaustive search, not done here, finds no fewer): the second row
   begins with the key at which the first one ended. *)
Example two_by_two :
  exists es : list (event (attention true false false 1 1 (all_pairs 2 2))),
    valid 4 (init _) es /\ complete true false false 1 1 (all_pairs 2 2) (run (init _) es) /\
    traffic es = 10.
Proof.
  set (X := attention true false false 1 1 (all_pairs 2 2)).
  set (key := fun j => [@Load X (Wk j 0); @Load X (Wv j 0)]).
  set (drop := fun j => [@Drop X (Wk j 0); @Drop X (Wv j 0)]).
  set (row := fun i => [@Load X (Wq i 0); @New X (Wa i 0)]).
  set (finish := fun i => [@Store X (Wa i 0); @Drop X (Wq i 0); @Drop X (Wa i 0)]).
  exists (row 0 ++ key 0 ++ [@Do X (Absorb 0 0)] ++ drop 0 ++ key 1 ++ [@Do X (Absorb 0 1)] ++ finish 0
       ++ row 1 ++ [@Do X (Absorb 1 1)] ++ drop 1 ++ key 0 ++ [@Do X (Absorb 1 0)] ++ finish 1).
  split; [ | split ].
  - cbn. unfold incl. cbn. intuition (try lia; try discriminate; subst; auto 10).
  - intros i j c Hp Hc. assert (c = 0) as -> by lia. cbn in Hp.
    intuition (match goal with E : (_, _) = (_, _) |- _ => injection E as <- <- end; cbn; auto).
  - reflexivity.
Qed.
